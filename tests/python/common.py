"""Generated stubs for proto/pando/v1, and small helpers."""
import os
import sys


def stubs(proto, out):
    """Compiles proto/pando/v1/*.proto into `out` and returns a module finder ready for `from pando.v1 import ...`."""
    from importlib import resources

    from grpc_tools import protoc

    files = sorted(f"pando/v1/{name}" for name in os.listdir(os.path.join(proto, "pando", "v1")))
    include = str(resources.files("grpc_tools") / "_proto")
    args = ["protoc", f"-I{proto}", f"-I{include}", f"--python_out={out}", f"--grpc_python_out={out}", *files]
    assert protoc.main(args) == 0, "protoc"
    sys.path.insert(0, str(out))


def expect(what, condition):
    if not condition:
        raise SystemExit(f"failed: {what}")
    print(f"ok: {what}")
