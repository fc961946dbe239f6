-- Raw data that no stored record claims is no evidence yet: its record may never come (overwritten on the device), or its
-- last piece may not. Such data may be removed when they have waited long enough; claimed ones stay as before, and now the
-- row that says that they are claimed stays too.

ALTER TABLE evidence_attachments ADD COLUMN last_at timestamptz NOT NULL DEFAULT now();
CREATE INDEX evidence_attachments_waiting ON evidence_attachments (last_at) WHERE claimed_by IS NULL;

CREATE FUNCTION evidence_stays_once_claimed() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE claimed boolean := true;
BEGIN
    IF TG_TABLE_NAME = 'evidence_attachments' THEN
        claimed := OLD.claimed_by IS NOT NULL;
    ELSIF TG_OP = 'DELETE' THEN
        EXECUTE format('SELECT EXISTS (SELECT FROM %I.evidence_attachments a
            WHERE (a.device_key, a.event_id, a.sha256) = ($1, $2, $3) AND a.claimed_by IS NOT NULL)', TG_TABLE_SCHEMA)
            INTO claimed USING OLD.device_key, OLD.event_id, OLD.sha256;
    END IF;
    IF claimed THEN
        RAISE EXCEPTION '% holds evidence: its rows are never changed or deleted', TG_TABLE_NAME
            USING ERRCODE = 'insufficient_privilege';
    END IF;
    IF TG_OP = 'DELETE' THEN
        RETURN OLD;
    END IF;
    RETURN NEW;
END $$;

DROP TRIGGER stays ON evidence_pieces;
CREATE TRIGGER stays BEFORE UPDATE OR DELETE ON evidence_pieces
    FOR EACH ROW EXECUTE FUNCTION evidence_stays_once_claimed();
CREATE TRIGGER stays BEFORE UPDATE OR DELETE ON evidence_attachments
    FOR EACH ROW EXECUTE FUNCTION evidence_stays_once_claimed();
CREATE TRIGGER all_stay BEFORE TRUNCATE ON evidence_attachments FOR EACH STATEMENT EXECUTE FUNCTION evidence_stays();
GRANT DELETE ON evidence_pieces, evidence_attachments TO fleetstream_evidence;
