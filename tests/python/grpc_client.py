"""gRPC with stubs generated from proto/, health and reflection.  usage: grpc_client.py HOST:PORT PROTO_DIR TEMP_DIR"""
import sys

import grpc
import numpy as np

from common import expect, stubs

address, proto, temp = sys.argv[1:4]
stubs(proto, temp)
from pando.v1 import collection_pb2 as cp, collection_pb2_grpc as cg  # noqa: E402
from pando.v1 import query_pb2 as qp, query_pb2_grpc as qg  # noqa: E402
from pando.v1 import record_pb2 as rp, record_pb2_grpc as rg, types_pb2 as t  # noqa: E402

channel = grpc.insecure_channel(address)
collections, records, queries = cg.CollectionServiceStub(channel), rg.RecordServiceStub(channel), qg.QueryServiceStub(channel)

from grpc_health.v1 import health_pb2, health_pb2_grpc  # noqa: E402

health = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
expect("the server is healthy", health.status == health_pb2.HealthCheckResponse.SERVING)

from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase  # noqa: E402

try:
    names = set(ProtoReflectionDescriptorDatabase(channel).get_services())
except grpc.RpcError as error:
    # The Python package speaks v1alpha; a server may have v1 only.
    expect(f"reflection answers: {error.code()}", error.code() == grpc.StatusCode.UNIMPLEMENTED)
    names = {"pando.v1.RecordService"}
expect("reflection lists the services", "pando.v1.RecordService" in names)

made = collections.CreateCollection(
    cp.CreateCollectionRequest(config=cp.CollectionConfig(name="python", dimension=4, metric=t.METRIC_L2))
).collection
expect("defaults are told", made.config.copies == 2 and made.config.refine and made.config.small_limit == 10000)

x = np.random.default_rng(3).standard_normal((200, 4), dtype=np.float32)
record = lambda i: t.Record(id=t.Id(number=i), vector=t.Vector(values=x[i].tolist()), attributes={"row": t.Value(int64=i)})
written = records.Upsert(rp.UpsertRequest(collection="python", records=[record(i) for i in range(200)]))
expect("200 written", written.upserted == 200 and written.token.sequence >= 1)

answer = queries.Query(
    qp.QueryRequest(
        collection="python",
        vectors=[t.Vector(values=x[i].tolist()) for i in (3, 150)],
        top_k=5,
        include=t.Include(all_attributes=True),
        consistency=t.Consistency(at_least=written.token),
    )
)
for a, i in zip(answer.answers, (3, 150)):
    truth = np.argsort(((x.astype(np.float64) - x[i]) ** 2).sum(1), kind="stable")[:5]
    expect(f"the five nearest of {i}", [m.record.id.number for m in a.matches] == truth.tolist())
    expect("attributes come along", a.matches[0].record.attributes["row"].int64 == i)
    expect("an unasked vector does not", not a.matches[0].record.HasField("vector"))
    expect("the work is told", a.work.codes_scanned >= 200 or a.method == qp.MODE_EXACT)

gone = records.Delete(rp.DeleteRequest(collection="python", ids=rp.IdList(ids=[t.Id(number=3), t.Id(number=999)])))
expect("one of two was there", gone.deleted == 1)
pages = list(records.Scan(rp.ScanRequest(collection="python", page_size=64)))
ids = [r.id.number for p in pages for r in p.records]
expect("a scan in pages, in id order, without the deleted", ids == [i for i in range(200) if i != 3] and len(pages) >= 4)
expect("one position for all pages", len({p.token.sequence for p in pages}) == 1)

try:
    queries.Query(qp.QueryRequest(collection="python", vectors=[t.Vector(values=[1.0])], top_k=1))
    expect("a wrong dimension is refused", False)
except grpc.RpcError as error:
    expect("a wrong dimension is refused", error.code() == grpc.StatusCode.INVALID_ARGUMENT)
outcome = list(collections.Compact(cp.CompactRequest(collection="python", wait=True)))[-1].outcome
expect("a root is made", len(outcome.root) == 64 and outcome.generation == 1)
