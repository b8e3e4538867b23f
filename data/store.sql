-- The store of a run: every request and reply, each row with the checksum of its content.
-- settings, reasoning: ids of rows of `text`, or minus the id of a row of `reply` with the same text.
CREATE TABLE run (field TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE secret (id INTEGER PRIMARY KEY, value TEXT NOT NULL, checksum BLOB NOT NULL);
CREATE TABLE text (
  id INTEGER PRIMARY KEY, digest BLOB NOT NULL UNIQUE, content BLOB NOT NULL, checksum BLOB NOT NULL
);
CREATE TABLE reply (
  id INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE, role TEXT NOT NULL, model TEXT NOT NULL, unit TEXT NOT NULL,
  sample INTEGER NOT NULL, settings INTEGER NOT NULL, content BLOB NOT NULL, finish TEXT NOT NULL,
  served_model TEXT NOT NULL,
  prompt_tokens INTEGER NOT NULL, cached_tokens INTEGER NOT NULL, completion_tokens INTEGER NOT NULL,
  reasoning_tokens INTEGER NOT NULL, reasoning INTEGER,
  seconds REAL NOT NULL, attempts INTEGER NOT NULL, at REAL NOT NULL, checksum BLOB NOT NULL
);
CREATE TABLE failure (
  id INTEGER PRIMARY KEY, key BLOB NOT NULL, role TEXT NOT NULL, model TEXT NOT NULL, unit TEXT NOT NULL,
  code TEXT NOT NULL, message TEXT NOT NULL, attempts INTEGER NOT NULL, at REAL NOT NULL, checksum BLOB NOT NULL
);
CREATE TABLE pace (
  id INTEGER PRIMARY KEY, endpoint TEXT NOT NULL, most INTEGER NOT NULL, ceiling INTEGER NOT NULL, reason TEXT NOT NULL,
  epoch INTEGER NOT NULL, at REAL NOT NULL, checksum BLOB NOT NULL
)
