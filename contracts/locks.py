"""The first half of every advisory lock's key, in one place: two locks of one number would keep each other out.

The second half says of what: a schema, a device, a version. A number stays what it is for ever, since an older version
may hold it beside a newer one. Migrations cannot import this; a test compares them with it.
"""

from __future__ import annotations

from typing import Final

OF_SCHEMA: Final = "hashtext(current_schema())"
"""SQL of the second half where one works per schema: by its name, so that parallel stacks do not meet and a schema
that is exchanged for another (``fleetstream swap``) does not let a second one in."""

MIGRATE_LOCK: Final = 7_310_001
"""One migration, or one rebuild of a version, at a time."""

RELAY_LOCK: Final = 7_310_002
"""One relay per schema's name."""

SUBMIT_LOCK: Final = 7_310_003
"""Requests for one device go one after the other (the function ``submit_command``)."""

SIDE_DOORS_LOCK: Final = 7_310_004
"""One command at a time changes what PUBLIC may do."""

CLERK_LOCK: Final = 7_310_005
"""One clerk per schema."""

COMPACTOR_LOCK: Final = 7_310_006
"""One compactor per schema."""

WATCH_LOCK: Final = 7_310_007
"""One gap watch per schema."""

FINALITY_LOCK: Final = 7_310_008
"""Ingest holds it shared, who makes windows final holds it alone."""

EPOCHS_LOCK: Final = 7_310_009
"""The epochs of a device are told one transaction after the other (the function ``tell_epochs``)."""

FLEET_LOCK: Final = 7_310_010
"""Imports and groups of one tenant go one after the other (the function ``lock_fleet``)."""

WARDEN_LOCK: Final = 7_310_020
"""One warden per schema: who makes alerts of findings."""

COURIER_LOCK: Final = 7_310_021
"""One courier per schema: who sends messages about alerts."""

REJUDGE_LOCK: Final = 7_310_022
"""One process per schema judges late readings again."""
