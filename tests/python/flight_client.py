"""Bulk loading with plain pyarrow.  usage: flight_client.py HOST:PORT PROTO_DIR TEMP_DIR"""
import json
import sys

import grpc
import numpy as np
import pyarrow as pa
import pyarrow.flight as flight

from common import expect, stubs

address, proto, temp = sys.argv[1:4]
stubs(proto, temp)
from pando.v1 import collection_pb2, collection_pb2_grpc, record_pb2, record_pb2_grpc, types_pb2  # noqa: E402

channel = grpc.insecure_channel(address)
collections = collection_pb2_grpc.CollectionServiceStub(channel)
records = record_pb2_grpc.RecordServiceStub(channel)
config = collection_pb2.CollectionConfig(name="python", dimension=8, metric=types_pb2.METRIC_COSINE)
collections.CreateCollection(collection_pb2.CreateCollectionRequest(config=config))
count = lambda: records.Count(record_pb2.CountRequest(collection="python")).count

rng = np.random.default_rng(7)
x = rng.standard_normal((1000, 8), dtype=np.float32)
client = flight.connect(f"grpc://{address}")
descriptor = flight.FlightDescriptor.for_path("python")


def vectors(a, kind):
    return pa.FixedSizeListArray.from_arrays(pa.array(a.ravel().astype(kind)), a.shape[1])


def put(table, batch_rows=None, slices=None):
    """DoPut; one acknowledgement a batch, read while writing."""
    writer, reader = client.do_put(descriptor, table.schema)
    acks = []
    batches = slices if slices is not None else table.to_batches(max_chunksize=batch_rows)
    for batch in batches:
        writer.write_batch(batch)
        answer = reader.read()
        if answer is None:
            break  # the server ended the stream: close() raises what it said
        acks.append(json.loads(answer.to_pybytes()))
    writer.close()
    return acks


table = pa.table(
    {
        "id": pa.array(range(1000), pa.uint64()),
        "vector": vectors(x, np.float32),
        "color": pa.array(["red", "green", None, "blue"] * 250).dictionary_encode(),
        "n": pa.array(range(1000), pa.int64()),
    }
)
acks = put(table, batch_rows=300)
expect("four batches, four acknowledgements with rising sequences", [a["sequence"] for a in acks] == sorted({a["sequence"] for a in acks}) and len(acks) == 4)
expect("1,000 records", count() == 1000)

# Slices share buffers with the whole table and have offsets; dictionaries, too.
more = table.set_column(0, "id", pa.array(range(5000, 6000), pa.uint64())).combine_chunks().to_batches()[0]
put(table, slices=[more.slice(17, 100), more.slice(503, 77)])
expect("only the rows of the slices", count() == 1177)
got = records.Fetch(
    record_pb2.FetchRequest(
        collection="python",
        ids=[types_pb2.Id(number=n) for n in (5017, 5116, 5117, 5503, 5579, 5580)],
        include=types_pb2.Include(vector=True, all_attributes=True),
    )
).results
expect("the right rows of the slices", [r.HasField("record") for r in got] == [True, True, False, True, True, False])
expect("their vectors", np.array_equal(np.array(got[3].record.vector.values, np.float32), x[503]))
expect("their dictionary values", got[0].record.attributes["color"].string == "green")
expect("null is absent", "color" not in got[1].record.attributes or got[1].record.attributes["color"].string in ("red", "blue"))

# Other widths of floats, other kinds of lists, string ids of every layout.
for kind, name in ((np.float16, "f16"), (np.float64, "f64")):
    put(pa.table({"id": pa.array([f"{name}-{i}" for i in range(10)]), "vector": vectors(x[:10], kind)}))
lists = pa.array([list(map(float, row)) for row in x[:10]], pa.list_(pa.float32()))
put(pa.table({"id": pa.array([f"list-{i}" for i in range(10)], pa.large_string()), "vector": lists}))
large = pa.array([list(map(float, row)) for row in x[:10]], pa.large_list(pa.float32()))
put(pa.table({"id": pa.array([f"large-{i}" for i in range(10)]).dictionary_encode(), "vector": large}))
put(pa.table({"id": pa.array([f"view-{i}" for i in range(10)], pa.string_view()), "vector": vectors(x[:10], np.float32)}))
put(pa.table({"id": pa.array([-1 + i for i in range(1, 11)], pa.int32()), "vector": vectors(x[:10], np.float32)}))
expect("50 more records, and ten replaced", count() == 1227)

# A refused batch: an error of Arrow Flight that names the culprit.
bad = x[:5].copy()
bad[3, 2] = np.nan
try:
    put(pa.table({"id": pa.array([9000, 9001, 9002, 9003, 9004], pa.uint64()), "vector": vectors(bad, np.float32)}))
    expect("NaN is refused", False)
except (flight.FlightError, pa.ArrowInvalid) as error:
    expect("NaN is refused by name", "9003" in str(error))
expect("nothing of it is stored", count() == 1227)
try:
    put(pa.table({"id": pa.array([-1], pa.int64()), "vector": vectors(x[:1], np.float32)}))
    expect("negative ids are refused", False)
except (flight.FlightError, pa.ArrowInvalid) as error:
    expect("negative ids are refused by name", "negative" in str(error))
