"""The server of examples/serve with the model of served_text.py, whose steps take 10 ms, and a grace of so many seconds:

python serve_process.py SECONDS
"""

import signal
import sys
import time

from served_text import CONTEXT, scheduled
from server import Server, make_app

scheduler = scheduled(before=lambda ranges: time.sleep(0.01))
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
try:
    Server(make_app(scheduler, CONTEXT), "127.0.0.1", 0, int(sys.argv[1])).run()
finally:
    print(scheduler.status(), flush=True)
