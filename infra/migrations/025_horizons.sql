-- Readings of a class that were received before this moment may have left the store: their blocks were older than the class
-- is kept. Written by the transaction that deletes them; who asks for older readings asks the archive too.
CREATE TABLE reading_horizons (
    retention       smallint PRIMARY KEY,
    received_before timestamptz NOT NULL
);
GRANT SELECT ON reading_horizons TO fleetstream_sink, fleetstream_api, fleetstream_reader;
