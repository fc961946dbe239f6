"""The fleet questions: one small class each, one line in ``menu``. SQL stands in ``api.queries.fleet``."""
