"""The crash recorder: always running, rarely writing.

In: motion samples (sensor axes, m/s²), channel values (speed, brake, belt …), restraint commands; all stamped with
the device's monotonic clock. Out: sealed capsules in a file that survives a power cut at any instant.

`capture` is the pure heart (`detector` decides, `rings` remember, `assemble` shapes); `store` owns the file,
`policy` decides what it may overwrite, `signing` holds the device's key, `recorder` ties them together.
"""
