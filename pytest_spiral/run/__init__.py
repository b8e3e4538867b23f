"""One run: settings, plan, engine, shards, resume and cost estimate."""
