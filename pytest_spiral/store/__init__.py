"""The run store: one SQLite file per run with every request and reply, written the moment a reply arrives.

Table `reply` has one row per request and reply. A message that repeats an earlier reply names its row; other texts are
in table `text`, each distinct one once, and rows name them by their ids. A judge's reply, and one that another process
has stored, may be in both where a request repeats it. Every request can be read back in full.
Each row and each text carries a checksum that is verified whenever it is read.

Resuming a run means running it again against its store: a request whose key is known is answered from here and is not
sent again.
"""

from pytest_spiral.store.database import PREFLIGHT
from pytest_spiral.store.records import AnsweredCall, EndpointPace, ModelUsage, StoredExchange
from pytest_spiral.store.run_store import RunStore
from pytest_spiral.store.stored_chat import StoredChat

__all__ = ["PREFLIGHT", "AnsweredCall", "EndpointPace", "ModelUsage", "RunStore", "StoredChat", "StoredExchange"]
