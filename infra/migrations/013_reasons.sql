-- A gap that a device named when it was asked, because it lost the spool that held the packets, has a word of its own.
CREATE OR REPLACE VIEW drops WITH (security_invoker = true) AS
SELECT d.device, g.boot_epoch, g.first_seq, g.last_seq,
       CASE g.reason WHEN 1 THEN 'spool_bytes' WHEN 2 THEN 'spool_age' WHEN 3 THEN 'corrupt_spool' WHEN 4 THEN 'disk_full'
           WHEN 5 THEN 'forgotten' ELSE 'reason ' || g.reason END AS reason,
       CASE g.retention WHEN 0 THEN 'bulk' WHEN 1 THEN 'standard' WHEN 2 THEN 'personal' WHEN 3 THEN 'safety'
           WHEN 9 THEN 'priority' ELSE 'class ' || g.retention END AS class,
       CASE WHEN g.reason <> 3 OR g.packets > 0 THEN g.packets END AS packets,
       CASE WHEN g.reason NOT IN (3, 5) OR g.samples > 0 THEN g.samples END AS samples,
       g.received_at AS reported_at, g.reported_seq, t.name AS tenant
FROM agent_gaps g JOIN devices d ON d.device_key = g.device_key JOIN tenants t ON t.tenant_id = g.tenant_id;
