-- Where a record stands among the others of its recorder: asked while only that one record may be read.
CREATE FUNCTION edr_chain(p_record bytea) RETURNS TABLE (chain text, replaced boolean)
LANGUAGE sql STABLE SECURITY DEFINER
BEGIN ATOMIC
    SELECT CASE WHEN r.record_no = 1 THEN 'first'
                WHEN EXISTS (SELECT FROM evidence_records b WHERE b.recorder_id = r.recorder_id
                    AND b.record_no = r.record_no - 1 AND b.sha256 = r.previous_sha256) THEN 'follows'
                ELSE 'apart' END,
           EXISTS (SELECT FROM evidence_records n WHERE n.tenant_id = r.tenant_id AND n.device_key = r.device_key
               AND n.event_id = r.event_id AND n.record_no > r.record_no AND n.complete)
    FROM evidence_records r WHERE r.sha256 = p_record AND r.tenant_id = evidence_tenant();
END;
ALTER FUNCTION edr_chain SET search_path = pg_catalog, pg_temp;
REVOKE EXECUTE ON FUNCTION edr_chain FROM PUBLIC;
GRANT EXECUTE ON FUNCTION edr_chain TO fleetstream_api;
