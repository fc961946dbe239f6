-- Crash records that were refused: whoever runs the platform sees that bytes were kept aside, of which device and why,
-- never the bytes. The API and tenants' own logins have no right on the table (014_evidence.sql), so none on the view.

GRANT SELECT (aside_id, tenant_id, device_key, reason, detail, bytes_sha256, received_at, set_aside_at, entry_no)
    ON evidence_asides TO fleetstream_reader;
CREATE POLICY all_tenants ON evidence_asides FOR SELECT TO fleetstream_reader USING (true);

CREATE VIEW edr_asides WITH (security_invoker = true) AS
SELECT d.device, a.reason, a.detail, a.received_at, a.set_aside_at, encode(a.bytes_sha256, 'hex') AS sha256,
       a.entry_no, a.aside_id, t.name AS tenant
FROM evidence_asides a
LEFT JOIN devices d ON d.device_key = a.device_key
LEFT JOIN tenants t ON t.tenant_id = a.tenant_id;
GRANT SELECT ON edr_asides TO fleetstream_reader;
