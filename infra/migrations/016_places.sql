-- Where an asset that does not move stands (WGS 84 degrees). What moves tells its position itself.
ALTER TABLE assets
    ADD COLUMN latitude double precision CHECK (latitude BETWEEN -90 AND 90),
    ADD COLUMN longitude double precision CHECK (longitude BETWEEN -180 AND 180),
    ADD CONSTRAINT assets_place CHECK ((latitude IS NULL) = (longitude IS NULL));
