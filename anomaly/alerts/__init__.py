"""Alert policy: what a finding does to an alert, how grave it is, whom it disturbs and when. Pure, without NumPy.

Comes in: facts about findings and alerts as plain values, and the time. Goes out: decisions. ``life`` (who may move an
alert where), ``gathering`` (one alert per cause), ``gravity`` (severity from criticality and cost), ``storm`` (many
alerts of one root become one), ``waiting`` (escalation, quiet hours, pauses between attempts).
"""
