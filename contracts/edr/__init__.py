"""The crash record: what the recorder in the vehicle and everybody who reads its evidence must agree on.

In: a finished event in physical terms (`record.EventRecord`, shaped by a `profiles.Profile`). Out: one sealed
capsule of deterministic bytes (`capsule`), an export of many (`export`), and the verdict on one (`verify`).

A capsule holds no VIN, position, driver or wall-clock time: who and where belong to the linkage, a separate
table with its own access rule. A capsule is a telematics record in the shape of the regulations, not the
download of the vehicle's own regulated recorder; its `source` says which of the three it is.

On the way to the cloud records travel as parcels (`wire`): notice, capsule, attachment pieces, linkage; a receipt
comes back. Standard library only, but for `x509`, which callers hand to `verify`: nothing else here imports it.
"""
