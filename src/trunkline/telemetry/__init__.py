"""What operators see: one log line per call, the numbers behind `/metrics`, and spans.

Everything here subscribes to `core.events` and nothing here steers: a full disk, a stuck terminal or a strange tool
name costs a log line, never a call.

- `logs`        the call log: events in, one structured line each
- `log_format`  what a line looks like, for people and for programs
- `writer`      the thread that writes lines in batches and drops them when nobody reads
- `redact`      takes configured secrets out of everything that is logged
- `safe_text`   makes text from outside fit on one line, without control characters
- `outcome`     the word for how a call ended
- `metrics`     counters and latency histograms
- `exposition`  the Prometheus text format
- `process`     memory, CPU and open files of this process

Spans, loaded only where calls are traced:

- `tracing`          the tracer: begins spans, knows whose children calls are
- `span`             one span and its ids
- `trace_context`    what a client says of the span it is in
- `call_spans`       a span for each call of a router
- `call_attributes`  what is recorded of a call
- `exporters`        which exporter is asked for, with what
- `otlp_json`        spans as OTLP writes them
- `otlp_export`      to a collector, in batches
- `span_lines`       to stderr or a file
"""
