"""Where readings come from. The menu; a new source is a new file and one line here."""

from edge_agent.sources.base import Reading, Source
from edge_agent.sources.recording import CsvSource
from edge_agent.sources.scripted import ScriptedSource
from edge_agent.sources.stdin import StdinSource

SOURCES = (ScriptedSource, CsvSource, StdinSource)

__all__ = ["SOURCES", "CsvSource", "Reading", "ScriptedSource", "Source", "StdinSource"]
