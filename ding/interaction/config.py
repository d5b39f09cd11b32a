"""Defaults and lower bounds of the arguments of `Master` and `Slave`. Times are in seconds."""

GLOBAL_HOST = "0.0.0.0"
LOCAL_HOST = "127.0.0.1"

DEFAULT_MASTER_PORT = 7235
DEFAULT_SLAVE_PORT = 7236
DEFAULT_CHANNEL = 0

DEFAULT_REQUEST_RETRIES = 5
DEFAULT_REQUEST_RETRY_WAITING = 1.0
# Until the connection is open, and until the reply begins; replies wait for the hooks of a peer, never for tasks.
DEFAULT_REQUEST_TIMEOUT = (5.0, 30.0)

DEFAULT_HEARTBEAT_SPAN = 3.0
MIN_HEARTBEAT_SPAN = 0.2
DEFAULT_HEARTBEAT_TOLERANCE = 17.0
MIN_HEARTBEAT_TOLERANCE = 0.2
DEFAULT_HEARTBEAT_CHECK_SPAN = 1.0
MIN_HEARTBEAT_CHECK_SPAN = 0.1

DEFAULT_BODY_LIMIT = 64 * 2**20  # bytes
