"""Models that are trained on healthy readings: recipes, their file, comparison on held-back data, who judges when.

Pure: files, tables and Spark are in ``stream_jobs``. Read ``recipe.py`` (what can be trained), ``rows.py`` (readings to
rows, as the stream does it), ``fitting.py``, ``file.py`` (a model as bytes), ``trial.py`` (false alarms and injected
faults), ``verdict.py`` (which of two is worse), ``schedule.py`` (which model judges which event times).
"""
