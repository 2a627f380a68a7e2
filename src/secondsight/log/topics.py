"""Name the topics and groups in which the stages meet; gateway and processor must agree on them."""

INGEST_TOPIC = "ingest"
DEFINITIONS_TOPIC = "definitions"
PROCESSOR_GROUP = "processor"
