"""Serve one GGUF file through llama.cpp's own OpenAI-compatible HTTP server. Run as a script.

    python -P serve_model.py MODEL PORT THREADS CONTEXT

Ends at SIGTERM or SIGINT.
"""

import importlib
import os
import signal
import sys


def main(model: str, port: int, threads: int, context: int) -> None:
    endings = {signal.SIGTERM, signal.SIGINT}
    # Before the server starts its threads, so that all of them inherit the mask and the signal waits for `sigwait`
    # below: the server's own handling of SIGTERM does not end the process.
    signal.pthread_sigmask(signal.SIG_BLOCK, endings)
    # Only here: loading the library is what fails where libgomp is missing, and the parent shows our words for it.
    llama = importlib.import_module("xllamacpp")
    parameters = llama.CommonParams()
    parameters.model.path = model
    parameters.model_alias = {os.path.basename(model).removesuffix(".gguf")}
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = port
    parameters.n_ctx = context
    parameters.n_parallel = 1
    parameters.cpuparams.n_threads = threads
    parameters.cpuparams_batch.n_threads = threads
    # The prompt cache would take gigabytes for a model that re-reads a prompt in a second.
    parameters.cache_ram_mib = 0
    # Any page in a browser could use it otherwise.
    parameters.cors_origins = f"http://127.0.0.1:{port}"
    parameters.offline = True
    parameters.verbosity = 2
    server = llama.Server(parameters)
    print(f"serving {model} on {server.listening_address}", flush=True)
    signal.sigwait(endings)
    # The library's own shutdown may wait for a call that is still generating.
    os._exit(0)


if __name__ == "__main__":
    try:
        main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
    except ImportError as error:
        if "libgomp" in str(error):
            raise SystemExit(
                "the system library libgomp is missing: apt-get install libgomp1 (Debian, Ubuntu), "
                f"dnf install libgomp (Fedora), apk add libgomp (Alpine) [{error}]"
            ) from None
        raise SystemExit(f"the wheel `xllamacpp` cannot be loaded: {error}") from None
