-- What the courier and the warden ask most often.
CREATE INDEX alert_deliveries_channel ON alert_deliveries (channel_id, delivery_id) WHERE state = 'waiting';
CREATE INDEX alert_deliveries_alert ON alert_deliveries (alert_id, event_no);
CREATE INDEX alert_labels_detector ON alert_labels (tenant_id, detector);
