"""A page's server in a thread of the test."""

import contextlib
import threading

from trainers.serving.page.server import Limits, Page


@contextlib.contextmanager
def serving(model, host="127.0.0.1", **limits):
    """Yields the address (host, port) of a page's server that is named `host`."""
    with Page("127.0.0.1", 0, Limits(**limits)) as page:
        page.model, page.host = model, host
        thread = threading.Thread(target=page.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield page.server_address
        finally:
            page.shutdown()
            thread.join()
