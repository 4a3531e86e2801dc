"""The demo's data is what data/demo/README.md says.  usage: demo_data.py data/demo"""
import hashlib
import os
import sys

import numpy as np
import pyarrow as pa

folder = sys.argv[1]
readme = open(os.path.join(folder, "README.md"), encoding="utf-8").read()
for name, rows in (("sentences.arrow", 12288), ("queries.arrow", 24)):
    path = os.path.join(folder, name)
    data = open(path, "rb").read()
    assert f"{hashlib.sha256(data).hexdigest()}  {name}" in readme, f"{name}: another checksum"
    table = pa.ipc.open_file(path).read_all()
    assert table.num_rows == rows, name
    vectors = np.stack(table["vector"].to_numpy(zero_copy_only=False)).astype(np.float32)
    assert vectors.shape == (rows, 384) and np.abs(np.linalg.norm(vectors, axis=1) - 1).max() < 2e-3, name
assert "WordNet 3.0" in open(os.path.join(folder, "WORDNET-COPYRIGHT.txt"), encoding="utf-8").read()
