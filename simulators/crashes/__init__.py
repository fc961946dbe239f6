"""Crashes, near-crashes and hard days: known pulses played to the real recorder.

In: a scenario's name, a profile, a seed. Out: what the recorder kept, beside what really happened, which is computed
from the pulses' closed forms (`truth`) and shares no code with the recorder.
"""
