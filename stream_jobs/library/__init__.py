"""A small library for new stream jobs on Spark Structured Streaming: window kinds, steps, triggers, one flat form.

In: streams with an event time column. Out: rows of windows, sessions or pairs, handed to a sink batch by batch.
The store's own windows do not come from here (they merge for ever, ``stream_jobs/merge.py``); these jobs watch a
topic and answer it with another. ``docs/how-to/write-a-stream-job.md`` shows one whole job.

Read ``kinds.py`` (which window), ``steps.py`` (what is done), ``job.py`` (when it is said, and how it starts).
"""
