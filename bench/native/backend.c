/* A very fast MCP server to put behind the peers, so that what is measured is the peer and not the server.
 *
 *   backend stdio [options]         one JSON message per line on stdin and stdout
 *   backend http PORT [options]     Streamable HTTP on 127.0.0.1:PORT, any path, JSON answers; below /tools it is a
 *                                   service behind HTTP instead: GET /tools, POST /tools/execute
 *   backend app PORT [options]      dials in to 127.0.0.1:PORT as an app, one JSON message per line
 *
 *   --tools N     list N tools in all (at least the three real ones)
 *   --name NAME   what it calls itself
 *   --modern      also answer server/discover, as a 2026-07-28 server does
 *
 * Real tools: echo {text}, blob {kb} (that many KiB of text), sleep {ms}. Any other listed tool answers "ok".
 * One thread, one epoll loop, no allocation per call once the buffers have grown. Linux only.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define READ_BYTES (64 * 1024)
#define ENOUGH_UNSENT (256 * 1024) /* with that much to write, further requests wait, as at any server that blocks */
#define MAX_EVENTS 256

static void die(const char *what) {
    perror(what);
    exit(1);
}

/* ---- growing buffers ------------------------------------------------------------------------------------------ */

typedef struct {
    char *data;
    size_t length, capacity;
} Buffer;

static char *reserve(Buffer *buffer, size_t extra) {
    if (buffer->length + extra > buffer->capacity) {
        size_t wanted = buffer->capacity ? buffer->capacity : 4096;
        while (wanted < buffer->length + extra) wanted *= 2;
        buffer->data = realloc(buffer->data, wanted);
        if (!buffer->data) die("realloc");
        buffer->capacity = wanted;
    }
    return buffer->data + buffer->length;
}

static void append(Buffer *buffer, const char *bytes, size_t count) {
    memcpy(reserve(buffer, count), bytes, count);
    buffer->length += count;
}

static void append_text(Buffer *buffer, const char *text) { append(buffer, text, strlen(text)); }

static void drop_front(Buffer *buffer, size_t count) {
    if (count == 0) return;
    memmove(buffer->data, buffer->data + count, buffer->length - count);
    buffer->length -= count;
}

/* ---- JSON: finding members, never building anything ------------------------------------------------------------ */

typedef struct {
    const char *at, *end; /* at == NULL: absent */
} Slice;

static const Slice ABSENT = {NULL, NULL};

static const char *skip_space(const char *p, const char *end) {
    while (p < end && (*p == ' ' || *p == '\t' || *p == '\r' || *p == '\n')) p++;
    return p;
}

static const char *skip_string(const char *p, const char *end) { /* p is at the opening quote */
    for (p++; p < end && *p != '"'; p++)
        if (*p == '\\') p++;
    return p < end ? p + 1 : end;
}

static const char *skip_value(const char *p, const char *end) {
    int depth = 0;
    do {
        p = skip_space(p, end);
        if (p >= end) return end;
        switch (*p) {
        case '"': p = skip_string(p, end); break;
        case '{': case '[': depth++; p++; break;
        case '}': case ']': depth--; p++; break;
        case ',': case ':': p++; break;
        default:
            while (p < end && !memchr(",:]} \t\r\n", *p, 8)) p++;
        }
    } while (depth > 0);
    return p;
}

/* Walks the members of an object: for (Members m = members(object); next_member(&m);) … m.key, m.value */
typedef struct {
    const char *at, *end;
    Slice key, value;
} Members;

static Members members(Slice object) {
    Members walk = {NULL, object.end, ABSENT, ABSENT};
    const char *p = object.at ? skip_space(object.at, object.end) : NULL;
    if (p && p < object.end && *p == '{') walk.at = p + 1;
    return walk;
}

static bool next_member(Members *walk) {
    if (!walk->at) return false;
    const char *p = skip_space(walk->at, walk->end);
    if (p < walk->end && *p == ',') p = skip_space(p + 1, walk->end);
    if (p >= walk->end || *p != '"') return false;
    const char *after_key = skip_string(p, walk->end);
    walk->key = (Slice){p + 1, after_key - 1};
    p = skip_space(after_key, walk->end);
    if (p >= walk->end || *p != ':') return false;
    walk->value.at = skip_space(p + 1, walk->end);
    walk->value.end = walk->at = skip_value(walk->value.at, walk->end);
    return true;
}

static bool is(Slice text, const char *literal) {
    size_t length = strlen(literal);
    return text.at && (size_t)(text.end - text.at) == length && !memcmp(text.at, literal, length);
}

static Slice unquoted(Slice value) {
    if (!value.at || value.end - value.at < 2 || *value.at != '"') return ABSENT;
    return (Slice){value.at + 1, value.end - 1};
}

static Slice member(Slice object, const char *key) {
    for (Members walk = members(object); next_member(&walk);)
        if (is(walk.key, key)) return walk.value;
    return ABSENT;
}

static long number(Slice value, long otherwise) { return value.at ? strtol(value.at, NULL, 10) : otherwise; }

static void append_slice(Buffer *buffer, Slice slice) { append(buffer, slice.at, (size_t)(slice.end - slice.at)); }

/* ---- MCP ------------------------------------------------------------------------------------------------------ */

static const char *server_name = "bench-backend";
static bool speaks_modern;
static Buffer tool_list; /* the inside of the `tools` array */

static void describe_tools(int total) {
    append_text(&tool_list,
        "{\"name\":\"echo\",\"description\":\"Gives the text back\",\"inputSchema\":{\"type\":\"object\","
        "\"properties\":{\"text\":{\"type\":\"string\"}},\"required\":[\"text\"]}},"
        "{\"name\":\"blob\",\"description\":\"Gives that many KiB of text\",\"inputSchema\":{\"type\":\"object\","
        "\"properties\":{\"kb\":{\"type\":\"integer\"}},\"required\":[\"kb\"]}},"
        "{\"name\":\"sleep\",\"description\":\"Answers after a while\",\"inputSchema\":{\"type\":\"object\","
        "\"properties\":{\"ms\":{\"type\":\"integer\"}},\"required\":[\"ms\"]}}");
    for (int i = 3; i < total; i++) {
        char text[640];
        int length = snprintf(text, sizeof text,
            ",{\"name\":\"report_%02d\",\"description\":\"Report %d: gathers the rows that match a filter and gives them back page by page.\","
            "\"inputSchema\":{\"type\":\"object\",\"properties\":{\"filter\":{\"type\":\"string\",\"description\":\"Which rows to take\"},"
            "\"page\":{\"type\":\"integer\",\"minimum\":1,\"default\":1},\"columns\":{\"type\":\"array\",\"items\":{\"type\":\"string\"}}},"
            "\"required\":[\"filter\"]}}", i, i);
        append(&tool_list, text, (size_t)length);
    }
}

typedef struct {
    Slice id, method, params;
} Message;

static Message read_message(Slice text) {
    Message message = {ABSENT, ABSENT, ABSENT};
    for (Members walk = members(text); next_member(&walk);) {
        if (is(walk.key, "id")) message.id = walk.value;
        else if (is(walk.key, "method")) message.method = unquoted(walk.value);
        else if (is(walk.key, "params")) message.params = walk.value;
    }
    return message;
}

static bool is_modern(Slice params) {
    return member(member(params, "_meta"), "io.modelcontextprotocol/protocolVersion").at != NULL;
}

/* Writes what a tool says, without quotes; gives the milliseconds it should be held back. */
static long use_tool(Slice name, Slice arguments, Buffer *out) {
    long delay_ms = 0;
    if (is(name, "echo")) {
        Slice text = unquoted(member(arguments, "text"));
        if (text.at) append_slice(out, text);
    } else if (is(name, "blob")) {
        size_t bytes = (size_t)number(member(arguments, "kb"), 1) * 1024;
        memset(reserve(out, bytes), 'x', bytes);
        out->length += bytes;
    } else {
        if (is(name, "sleep")) delay_ms = number(member(arguments, "ms"), 1);
        append_text(out, "ok");
    }
    return delay_ms;
}

static long call_tool(Slice params, Buffer *out) {
    Slice name = ABSENT, arguments = ABSENT;
    for (Members walk = members(params); next_member(&walk);) {
        if (is(walk.key, "name")) name = unquoted(walk.value);
        else if (is(walk.key, "arguments")) arguments = walk.value;
    }
    append_text(out, "\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"");
    long delay_ms = use_tool(name, arguments, out);
    append_text(out, "\"}],\"isError\":false");
    append_text(out, is_modern(params) ? ",\"resultType\":\"complete\"}" : "}");
    return delay_ms;
}

static void initialize(Slice params, Buffer *out) {
    Slice version = member(params, "protocolVersion");
    append_text(out, "\"result\":{\"protocolVersion\":");
    if (version.at) append_slice(out, version);
    else append_text(out, "\"2025-06-18\"");
    append_text(out, ",\"capabilities\":{\"tools\":{\"listChanged\":false}},\"serverInfo\":{\"name\":\"");
    append_text(out, server_name);
    append_text(out, "\",\"version\":\"1.0\"}}");
}

#define CACHE_HINTS ",\"resultType\":\"complete\",\"ttlMs\":0,\"cacheScope\":\"private\"}"

/* Answers one message into `out`. NO_ANSWER for notifications, else the milliseconds to hold the answer back. */
enum { NO_ANSWER = -1 };

static long answer(Message message, Buffer *out) {
    if (!message.id.at || !message.method.at) return NO_ANSWER;
    long delay_ms = 0;
    append_text(out, "{\"jsonrpc\":\"2.0\",\"id\":");
    append_slice(out, message.id);
    append_text(out, ",");
    if (is(message.method, "tools/call")) {
        delay_ms = call_tool(message.params, out);
    } else if (is(message.method, "tools/list")) {
        append_text(out, "\"result\":{\"tools\":[");
        append(out, tool_list.data, tool_list.length);
        append_text(out, is_modern(message.params) ? "]" CACHE_HINTS : "]}");
    } else if (is(message.method, "initialize")) {
        initialize(message.params, out);
    } else if (is(message.method, "ping")) {
        append_text(out, "\"result\":{}");
    } else if (speaks_modern && is(message.method, "server/discover")) {
        append_text(out, "\"result\":{\"supportedVersions\":[\"2026-07-28\"],\"capabilities\":{\"tools\":{}}" CACHE_HINTS);
    } else {
        append_text(out, "\"error\":{\"code\":-32601,\"message\":\"Method not found\"}");
    }
    append_text(out, "}");
    return delay_ms;
}

/* ---- apps that dial in, and services behind HTTP ---------------------------------------------------------------- */

static void append_register(Buffer *out) {
    append_text(out, "{\"type\":\"register\",\"appName\":\"");
    append_text(out, server_name);
    append_text(out, "\",\"tools\":[");
    append(out, tool_list.data, tool_list.length);
    append_text(out, "]}\n");
}

static long answer_invocation(Slice line, Buffer *out) {
    Slice id = ABSENT, tool = ABSENT, parameters = ABSENT;
    for (Members walk = members(line); next_member(&walk);) {
        if (is(walk.key, "correlationId")) id = walk.value;
        else if (is(walk.key, "tool")) tool = unquoted(walk.value);
        else if (is(walk.key, "parameters")) parameters = walk.value;
    }
    if (!id.at || !tool.at) return NO_ANSWER;
    append_text(out, "{\"type\":\"toolResponse\",\"correlationId\":");
    append_slice(out, id);
    append_text(out, ",\"result\":{\"success\":true,\"data\":\"");
    long delay_ms = use_tool(tool, parameters, out);
    append_text(out, "\",\"error\":null}}");
    return delay_ms;
}

static long execute(Slice body, Buffer *out) {
    Slice tool = ABSENT, arguments = ABSENT;
    for (Members walk = members(body); next_member(&walk);) {
        if (is(walk.key, "tool")) tool = unquoted(walk.value);
        else if (is(walk.key, "args")) arguments = walk.value;
    }
    append_text(out, "{\"output\":\"");
    long delay_ms = use_tool(tool, arguments, out);
    append_text(out, "\"}");
    return delay_ms;
}

/* ---- connections: stdin and stdout are one, each HTTP socket is one ---------------------------------------------- */

typedef struct {
    int read_fd, write_fd;
    unsigned serial; /* tells a connection from an earlier one with the same descriptor */
    Buffer in, out;
    size_t written; /* how much of `out` has left */
    bool awaits_room;
} Connection;

static int epoll_fd;
static bool over_http, dials_in;
static Connection **by_fd;
static size_t by_fd_size;

static void watch(int operation, int fd, unsigned events) {
    struct epoll_event event = {.events = events, .data.fd = fd};
    if (epoll_ctl(epoll_fd, operation, fd, &event) && errno != EPERM) die("epoll_ctl");
}

static Connection *connection_of(int fd) { return (size_t)fd < by_fd_size ? by_fd[fd] : NULL; }

static void remember(int fd, Connection *connection) {
    if ((size_t)fd >= by_fd_size) {
        size_t wanted = (size_t)fd * 2 + 64;
        by_fd = realloc(by_fd, wanted * sizeof *by_fd);
        if (!by_fd) die("realloc");
        memset(by_fd + by_fd_size, 0, (wanted - by_fd_size) * sizeof *by_fd);
        by_fd_size = wanted;
    }
    by_fd[fd] = connection;
}

static void connection_open(int read_fd, int write_fd) {
    static unsigned serial;
    Connection *connection = calloc(1, sizeof *connection);
    if (!connection) die("calloc");
    connection->read_fd = read_fd;
    connection->write_fd = write_fd;
    connection->serial = ++serial;
    remember(read_fd, connection);
    remember(write_fd, connection);
    watch(EPOLL_CTL_ADD, read_fd, EPOLLIN);
    if (write_fd != read_fd) watch(EPOLL_CTL_ADD, write_fd, 0);
}

static void connection_close(Connection *connection) {
    if (!over_http) exit(0); /* the only client is gone */
    by_fd[connection->read_fd] = NULL;
    close(connection->read_fd);
    free(connection->in.data);
    free(connection->out.data);
    free(connection);
}

static void connection_flush(Connection *connection) {
    Buffer *out = &connection->out;
    while (connection->written < out->length) {
        ssize_t count = write(connection->write_fd, out->data + connection->written, out->length - connection->written);
        if (count < 0) {
            if (errno == EINTR) continue;
            if (errno == EAGAIN) break;
            connection->written = out->length; /* the reader is gone; epoll will say so */
            break;
        }
        connection->written += (size_t)count;
    }
    bool awaits_room = connection->written < out->length;
    if (!awaits_room || connection->written >= ENOUGH_UNSENT) { /* else a busy pipe would make it grow for ever */
        drop_front(out, connection->written);
        connection->written = 0;
    }
    if (awaits_room != connection->awaits_room) {
        unsigned reading = connection->write_fd == connection->read_fd ? EPOLLIN : 0;
        watch(EPOLL_CTL_MOD, connection->write_fd, reading | (awaits_room ? EPOLLOUT : 0));
        connection->awaits_room = awaits_room;
    }
}

/* ---- answers held back by `sleep` ------------------------------------------------------------------------------ */

typedef struct {
    long long due_us;
    int fd;
    unsigned serial;
    char *bytes;
    size_t length;
} Held;

static Held *held;
static size_t held_count, held_capacity;

static long long now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000LL + now.tv_nsec / 1000;
}

/* Takes what was appended to the connection's output since `start` back out of it, to be sent later. */
static void hold_back(Connection *connection, size_t start, long delay_ms) {
    if (held_count == held_capacity) {
        held_capacity = held_capacity ? held_capacity * 2 : 64;
        held = realloc(held, held_capacity * sizeof *held);
        if (!held) die("realloc");
    }
    size_t length = connection->out.length - start;
    Held later = {now_us() + delay_ms * 1000, connection->write_fd, connection->serial, malloc(length), length};
    if (!later.bytes) die("malloc");
    memcpy(later.bytes, connection->out.data + start, length);
    held[held_count++] = later;
    connection->out.length = start;
}

static int wait_ms(void) {
    if (held_count == 0) return -1;
    long long first_us = held[0].due_us;
    for (size_t i = 1; i < held_count; i++)
        if (held[i].due_us < first_us) first_us = held[i].due_us;
    long long left_us = first_us - now_us();
    return left_us <= 0 ? 0 : (int)((left_us + 999) / 1000);
}

static void release_due(void) {
    long long now = held_count ? now_us() : 0;
    for (size_t i = 0; i < held_count;) {
        if (held[i].due_us > now) {
            i++;
            continue;
        }
        Connection *connection = connection_of(held[i].fd);
        if (connection && connection->serial == held[i].serial) {
            append(&connection->out, held[i].bytes, held[i].length);
            connection_flush(connection);
        }
        free(held[i].bytes);
        held[i] = held[--held_count];
    }
}

/* ---- framing: each takes whole messages from the front of the input and gives how many bytes it used -------------- */

static bool may_answer(const Connection *connection) { return connection->out.length - connection->written < ENOUGH_UNSENT; }

static size_t take_lines(Connection *connection) {
    size_t used = 0;
    char *newline;
    while (may_answer(connection) && (newline = memchr(connection->in.data + used, '\n', connection->in.length - used))) {
        Slice line = {connection->in.data + used, newline};
        size_t start = connection->out.length;
        long delay_ms = dials_in ? answer_invocation(line, &connection->out) : answer(read_message(line), &connection->out);
        if (delay_ms != NO_ANSWER) append_text(&connection->out, "\n");
        if (delay_ms > 0) hold_back(connection, start, delay_ms);
        used = (size_t)(newline - connection->in.data) + 1;
    }
    return used;
}

static void append_head(Buffer *out, const char *status, const char *extra, size_t body_bytes) {
    char head[256];
    int length = snprintf(head, sizeof head, "HTTP/1.1 %s\r\nContent-Type: application/json\r\n%sContent-Length: %zu\r\n\r\n",
        status, extra, body_bytes);
    append(out, head, (size_t)length);
}

static size_t content_length(const char *head, const char *end) {
    for (const char *line = head; line < end;) {
        if (!strncasecmp(line, "content-length:", 15)) return strtoul(line + 15, NULL, 10);
        const char *newline = memchr(line, '\n', (size_t)(end - line));
        if (!newline) break;
        line = newline + 1;
    }
    return 0;
}

static void answer_post(Connection *connection, Slice body) {
    static Buffer json;
    Message message = read_message(body);
    json.length = 0;
    long delay_ms = answer(message, &json);
    if (delay_ms == NO_ANSWER) {
        append_head(&connection->out, "202 Accepted", "", 0);
        return;
    }
    char session[64] = "";
    if (is(message.method, "initialize"))
        snprintf(session, sizeof session, "Mcp-Session-Id: bench-%d-%u\r\n", connection->read_fd, connection->serial);
    size_t start = connection->out.length;
    append_head(&connection->out, "200 OK", session, json.length);
    append(&connection->out, json.data, json.length);
    if (delay_ms > 0) hold_back(connection, start, delay_ms);
}

static void answer_as_service(Connection *connection, const char *head, Slice body) {
    static Buffer json;
    json.length = 0;
    long delay_ms = 0;
    if (!strncmp(head, "GET ", 4)) {
        append_text(&json, "[");
        append(&json, tool_list.data, tool_list.length);
        append_text(&json, "]");
    } else delay_ms = execute(body, &json);
    size_t start = connection->out.length;
    append_head(&connection->out, "200 OK", "", json.length);
    append(&connection->out, json.data, json.length);
    if (delay_ms > 0) hold_back(connection, start, delay_ms);
}

static size_t take_http(Connection *connection) {
    size_t used = 0;
    while (may_answer(connection)) {
        char *head = connection->in.data + used;
        size_t available = connection->in.length - used;
        char *blank = available ? memmem(head, available, "\r\n\r\n", 4) : NULL;
        if (!blank) return used;
        char *body = blank + 4;
        size_t body_bytes = content_length(head, blank);
        if (available < (size_t)(body - head) + body_bytes) return used;
        used += (size_t)(body - head) + body_bytes;
        if (!strncmp(head, "POST /tools", 11) || !strncmp(head, "GET /tools", 10))
            answer_as_service(connection, head, (Slice){body, body + body_bytes});
        else if (!strncmp(head, "POST ", 5)) answer_post(connection, (Slice){body, body + body_bytes});
        else if (!strncmp(head, "DELETE ", 7)) append_head(&connection->out, "200 OK", "", 0);
        else append_head(&connection->out, "405 Method Not Allowed", "Allow: POST, DELETE\r\n", 0);
    }
    return used;
}

/* Answers what has come in, as far as the client reads the answers. */
static void connection_serve(Connection *connection) {
    size_t used;
    do {
        used = over_http ? take_http(connection) : take_lines(connection);
        drop_front(&connection->in, used);
        connection_flush(connection);
    } while (used && connection->in.length && !connection->awaits_room);
}

static void connection_read(Connection *connection) {
    ssize_t count = read(connection->read_fd, reserve(&connection->in, READ_BYTES), READ_BYTES);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (count <= 0) {
        connection_close(connection);
        return;
    }
    connection->in.length += (size_t)count;
    connection_serve(connection);
}

/* ---- start and loop -------------------------------------------------------------------------------------------- */

static int listen_on(int port) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), on = 1;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((unsigned short)port),
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, (struct sockaddr *)&address, sizeof address) || listen(fd, 1024)) die("listen");
    watch(EPOLL_CTL_ADD, fd, EPOLLIN);
    return fd;
}

static void accept_all(int listener) {
    int fd, on = 1;
    while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        connection_open(fd, fd);
    }
}

static void serve_pipes(void) {
    fcntl(0, F_SETFL, fcntl(0, F_GETFL) | O_NONBLOCK);
    fcntl(1, F_SETFL, fcntl(1, F_GETFL) | O_NONBLOCK);
    connection_open(0, 1);
}

static int dial(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((unsigned short)port),
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    for (int attempt = 0; attempt < 6000; attempt++) { /* a minute: whoever listens is started after us */
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
        if (!connect(fd, (struct sockaddr *)&address, sizeof address)) {
            setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
            fcntl(fd, F_SETFL, O_NONBLOCK);
            return fd;
        }
        close(fd);
        usleep(10000);
    }
    errno = ETIMEDOUT;
    die("dial");
    return -1;
}

static void serve_as_app(int port) {
    int fd = dial(port);
    connection_open(fd, fd);
    append_register(&connection_of(fd)->out);
    connection_flush(connection_of(fd));
}

static void loop(int listener) {
    struct epoll_event events[MAX_EVENTS];
    for (;;) {
        int count = epoll_wait(epoll_fd, events, MAX_EVENTS, wait_ms());
        for (int i = 0; i < count; i++) {
            int fd = events[i].data.fd;
            Connection *connection = connection_of(fd);
            if (fd == listener) accept_all(listener);
            else if (!connection) continue;
            else if (events[i].events & EPOLLERR) connection_close(connection);
            else {
                if (events[i].events & EPOLLOUT) {
                    connection_flush(connection);
                    connection_serve(connection);
                }
                if (events[i].events & (EPOLLIN | EPOLLHUP)) connection_read(connection);
            }
        }
        release_due();
    }
}

static int usage(void) {
    fputs("usage: backend stdio | http PORT | app PORT [--tools N] [--name NAME] [--modern]\n", stderr);
    return 2;
}

int main(int argc, char **argv) {
    over_http = argc > 2 && !strcmp(argv[1], "http");
    dials_in = argc > 2 && !strcmp(argv[1], "app");
    if (argc < 2 || (!over_http && !dials_in && strcmp(argv[1], "stdio"))) return usage();
    int total_tools = 3;
    for (int i = over_http || dials_in ? 3 : 2; i < argc; i++) {
        if (!strcmp(argv[i], "--tools") && i + 1 < argc) total_tools = atoi(argv[++i]);
        else if (!strcmp(argv[i], "--name") && i + 1 < argc) server_name = argv[++i];
        else if (!strcmp(argv[i], "--modern")) speaks_modern = true;
        else return usage();
    }
    signal(SIGPIPE, SIG_IGN);
    describe_tools(total_tools);
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    int listener = -1;
    if (over_http) listener = listen_on(atoi(argv[2]));
    else if (dials_in) serve_as_app(atoi(argv[2]));
    else serve_pipes();
    loop(listener);
}
