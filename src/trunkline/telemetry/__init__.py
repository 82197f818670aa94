"""What operators see: one log line per call, the metrics behind `/metrics`, and spans.

Everything here subscribes to `core.events` and nothing here steers: a full disk, a stuck terminal or a strange tool
name costs a log line, never a call.

- `call_log`, `log_format`, `log_writer`: events in, one structured line each, written in batches by a thread
- `metrics`: counters and latency histograms, in the text format of Prometheus
- `call_summary`: what log lines, metrics and spans say of a call
- `redaction`: takes secrets and control characters out of everything that is logged

Spans, loaded only where calls are traced:

- `tracing`, `span`, `call_spans`: the tracer, one span, and the span of each call
- `exporters`, `otlp_export`, `otlp_json`: to stderr, to a file, or to a collector
"""
