"""A client of vLLM's gRPC services: grpcio of build/venv-fleet as it is, and messages by the .proto itself."""
import pathlib
import shutil
import subprocess
import tempfile

try:
    import grpc
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
except ImportError:
    grpc = None

PROTOC = shutil.which("protoc")
SOURCES = pathlib.Path(__file__).resolve().parents[2] / "src"


def load_messages():
    """The message types of both files, by name."""
    with tempfile.NamedTemporaryFile() as out:
        subprocess.run([PROTOC, f"-I{SOURCES}", f"--descriptor_set_out={out.name}", "server/grpc/vllm.proto", "server/grpc/health.proto"], check=True)
        files = descriptor_pb2.FileDescriptorSet.FromString(pathlib.Path(out.name).read_bytes())
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    return {f"{file.package}.{kind.name}": message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{file.package}.{kind.name}"))
            for file in files.file for kind in file.message_type}


MESSAGES = load_messages() if grpc and PROTOC else {}


def message(name, **fields):
    return MESSAGES[f"vllm.{name}"](**fields)


class Client:
    def __init__(self, port):
        self.channel = grpc.insecure_channel(f"127.0.0.1:{port}", [("grpc.max_receive_message_length", -1)])

    def call(self, method, request, answer="", streamed=False, patience_s=60):
        kind = MESSAGES[answer or "vllm.GenerateResponse"]
        make = self.channel.unary_stream if streamed else self.channel.unary_unary
        return make(method, lambda m: m.SerializeToString(), kind.FromString)(request, timeout=patience_s)

    def control(self, name, answer, **fields):
        return self.call(f"/vllm.Control/{name}", message(f"{name}Request", **fields), f"vllm.{answer}")

    def health(self, service=""):
        request = MESSAGES["grpc.health.v1.HealthCheckRequest"](service=service)
        return self.call("/grpc.health.v1.Health/Check", request, "grpc.health.v1.HealthCheckResponse").status

    def stream(self, patience_s=60, **fields):
        return self.call("/vllm.Inference/GenerateStream", request_of(**fields), streamed=True, patience_s=patience_s)

    def generate(self, **fields):
        return self.call("/vllm.Inference/Generate", request_of(**fields))


def request_of(prompt="Once upon a time", tokens=16, ids=True, **fields):
    """`prompt` is a text, or ids."""
    asked = {"temperature": 0, "response": message("ResponseOptions", output_token_ids=ids), **fields}
    stopping = message("StoppingCriteria", max_new_tokens=tokens, ignore_eos=True)
    if "stopping" in fields:
        stopping.MergeFrom(fields["stopping"])
    asked["stopping"] = stopping
    if isinstance(prompt, str):
        return message("GenerateRequest", text=prompt, **asked)
    return message("GenerateRequest", token_ids=message("TokenIds", ids=prompt), **asked)


def joined(pieces):
    pieces = list(pieces)
    ids = [i for piece in pieces for i in piece.outputs.token_ids]
    return "".join(piece.outputs.text for piece in pieces), ids, pieces[-1].outputs.finish_info
