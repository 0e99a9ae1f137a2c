"""An HTTP proxy before a server that fails as it is told to."""

import threading
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class FaultyProxy:
    """Passes requests on, or fails them.

    Args:
        port: Where the server is, on this machine.

    Attributes:
        fault: ``pass``, or ``refuse``: answer 500 and do nothing.
        authorization: What a request must have as its header of this name; None if nothing.
    """

    def __init__(self, port):
        self.server_port = port
        self.fault = "pass"
        self.authorization = None
        self.num_failed = 0
        self._changed = threading.Condition()
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one(self):
                proxy._handle(self)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = handle_one  # noqa: N815

            def log_message(self, *args):
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.uri = f"http://127.0.0.1:{self._http.server_port}"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def close(self):
        self.become("pass")
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def become(self, fault):
        """Fail in another way from now on."""
        with self._changed:
            self.fault, self.num_failed = fault, 0
            self._changed.notify_all()

    def wait_for_failures(self, count=1, timeout_s=240):
        """Wait until so many requests have failed in the present way."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.num_failed >= count, timeout_s)

    def _handle(self, request):
        body = request.rfile.read(int(request.headers.get("Content-Length", 0)))
        if self.authorization not in (None, request.headers.get("Authorization")):
            _answer(request, 401, b"who are you?")
            return
        if self._next_fault() == "refuse":
            _answer(request, 500, b"refused")
            return
        try:
            status, kind, text = self._passed_on(request, body)
        except (OSError, HTTPException):
            _answer(request, 502, b"nobody there")
            return
        _answer(request, status, text, kind)

    def _next_fault(self):
        with self._changed:
            if self.fault == "pass":
                return "pass"
            self.num_failed += 1
            self._changed.notify_all()
            return self.fault

    def _passed_on(self, request, body):
        connection = HTTPConnection("127.0.0.1", self.server_port, timeout=240)
        headers = {
            name: value
            for name, value in request.headers.items()
            if name.lower() not in ("host", "connection", "accept-encoding")
        }
        try:
            connection.request(request.command, request.path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.getheader("Content-Type"), answer.read()
        finally:
            connection.close()


def _answer(request, status, text, kind="text/plain"):
    try:
        request.send_response(status)
        if kind:
            request.send_header("Content-Type", kind)
        request.send_header("Content-Length", str(len(text)))
        request.end_headers()
        request.wfile.write(text)
    except OSError:
        request.close_connection = True  # it did not wait for the answer
