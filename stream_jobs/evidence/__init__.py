"""The evidence consumer: crash records from the priority topic into the store, exactly once; no Spark.

Read in this order: ``intake.py`` (a record of the log becomes a parcel), ``judge.py`` (may this capsule be believed?),
``writer.py`` (one parcel inside of the transaction), ``store.py`` (the transaction), ``roots.py`` (the end of a day),
``waiting.py`` (data that nobody claims), ``consumer.py`` (the loop).
"""
