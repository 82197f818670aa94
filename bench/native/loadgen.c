/* A closed-loop load generator for MCP: each slot sends a request, waits for its answer, and sends the next.
 *
 *   loadgen http PORT [options] [PID…]                  one keep-alive connection per slot, to 127.0.0.1:PORT
 *   loadgen pipes READ_FD WRITE_FD [options] [PID…]     all slots share one pair of inherited pipes, JSON lines
 *
 *   --requests FILE    raw requests separated by NUL bytes (HTTP: head and body; pipes: one line); slot i uses the
 *                      i-th, over and over. Each run of nine `@` is replaced by a number that no other request has.
 *   --in-flight N      slots
 *   --warm S           seconds before the measured window; it also waits until every slot could have had an answer
 *   --seconds S        the measured window; it is prolonged up to --max-seconds until --min-calls are in it
 *   --expect TEXT      must be in each answer
 *   --min-bytes N      each answer's body has at least this many bytes
 *   --first-id N       of nine digits; another one each time keeps late answers to an earlier run apart
 *
 * An answer counts when it is complete (an SSE answer: when its stream ends) and right: HTTP 200, the id of its
 * request, a JSON-RPC result, not `isError`. The CPU time (user and system) of the PIDs is read from /proc at both ends
 * of the window, their resident memory at the end. After the window the outstanding answers are awaited, so the peer
 * sees no client vanish. Prints one JSON object; the exit status is 1 if the run had to be given up. Linux only.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <netinet/tcp.h>
#include <poll.h>
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

#define PLACEHOLDER "@@@@@@@@@"
#define ID_DIGITS 9
#define MAX_PLACES 4
#define MAX_PIDS 512
#define MAX_EVENTS 256
#define READ_BYTES (128 * 1024)
#define PIPE_ROOM (60 * 1024)     /* what fits into a pipe without anyone reading */
#define ID_RING (1u << 16)        /* more than can ever be in flight on one pipe */
#define LONGEST_WARM_S 8.0
#define STALL_S 20.0
#define DRAIN_S 10.0
#define HOPELESS_ERRORS 200

static void die(const char *what) {
    perror(what);
    exit(2);
}

static void *checked(void *memory) {
    if (!memory) die("memory");
    return memory;
}

static double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* ---- options --------------------------------------------------------------------------------------------------- */

static struct {
    const char *requests_file, *expect;
    int in_flight;
    double warm_s, seconds, max_seconds;
    size_t min_calls, min_bytes;
    unsigned first_id;
    int pids[MAX_PIDS], pid_count;
} options = {.in_flight = 1, .warm_s = 0.2, .seconds = 1, .max_seconds = 1, .first_id = 100000000};

static void read_options(int argc, char **argv) {
    static const struct option known[] = {
        {"requests", required_argument, NULL, 'r'}, {"expect", required_argument, NULL, 'e'},
        {"in-flight", required_argument, NULL, 'n'}, {"warm", required_argument, NULL, 'w'},
        {"seconds", required_argument, NULL, 's'}, {"max-seconds", required_argument, NULL, 'x'},
        {"min-calls", required_argument, NULL, 'c'}, {"min-bytes", required_argument, NULL, 'b'},
        {"first-id", required_argument, NULL, 'i'}, {0}};
    int letter;
    while ((letter = getopt_long(argc, argv, "", known, NULL)) != -1) {
        switch (letter) {
        case 'r': options.requests_file = optarg; break;
        case 'e': options.expect = optarg; break;
        case 'n': options.in_flight = atoi(optarg); break;
        case 'w': options.warm_s = atof(optarg); break;
        case 's': options.seconds = atof(optarg); break;
        case 'x': options.max_seconds = atof(optarg); break;
        case 'c': options.min_calls = strtoul(optarg, NULL, 10); break;
        case 'b': options.min_bytes = strtoul(optarg, NULL, 10); break;
        case 'i': options.first_id = (unsigned)strtoul(optarg, NULL, 10); break;
        default: exit(2);
        }
    }
    for (; optind < argc && options.pid_count < MAX_PIDS; optind++) options.pids[options.pid_count++] = atoi(argv[optind]);
    if (!options.requests_file || options.in_flight < 1) {
        fputs("loadgen: --requests and --in-flight are needed\n", stderr);
        exit(2);
    }
    if (options.max_seconds < options.seconds) options.max_seconds = options.seconds;
}

/* ---- requests --------------------------------------------------------------------------------------------------- */

typedef struct {
    char *bytes;
    size_t length;
    size_t places[MAX_PLACES]; /* where its id stands */
    int place_count;
} Request;

static Request *requests;
static size_t request_count;
static unsigned next_id;

static void add_request(const char *bytes, size_t length) {
    requests = checked(realloc(requests, (request_count + 1) * sizeof *requests));
    Request *request = &requests[request_count++];
    *request = (Request){.bytes = checked(malloc(length)), .length = length};
    memcpy(request->bytes, bytes, length);
    char *place = request->bytes;
    while ((place = memmem(place, length - (size_t)(place - request->bytes), PLACEHOLDER, ID_DIGITS)) && request->place_count < MAX_PLACES) {
        request->places[request->place_count++] = (size_t)(place - request->bytes);
        place += ID_DIGITS;
    }
}

static void load_requests(void) {
    FILE *file = fopen(options.requests_file, "rb");
    if (!file) die(options.requests_file);
    fseek(file, 0, SEEK_END);
    size_t size = (size_t)ftell(file);
    rewind(file);
    char *text = checked(malloc(size + 1));
    if (fread(text, 1, size, file) != size) die(options.requests_file);
    fclose(file);
    for (size_t start = 0; start < size;) {
        char *nul = memchr(text + start, 0, size - start);
        size_t end = nul ? (size_t)(nul - text) : size;
        if (end > start) add_request(text + start, end - start);
        start = end + 1;
    }
    free(text);
    if (!request_count) die("no request in the file");
}

/* Writes a fresh id into the request, right before it is sent. */
static unsigned stamp(Request *request) {
    unsigned id = next_id++;
    char digits[16];
    snprintf(digits, sizeof digits, "%09u", id);
    for (int i = 0; i < request->place_count; i++) memcpy(request->bytes + request->places[i], digits, ID_DIGITS);
    return id;
}

/* ---- is an answer right? ---------------------------------------------------------------------------------------- */

/* The number after the first `"id":` of a piece of text, or 0. */
static unsigned id_in(const char *text, size_t length) {
    const char *end = text + length, *p = memmem(text, length, "\"id\":", 5);
    if (!p) return 0;
    for (p += 5; p < end && *p == ' ';) p++;
    unsigned id = 0;
    for (; p < end && *p >= '0' && *p <= '9'; p++) id = id * 10 + (unsigned)(*p - '0');
    return id;
}

/* Servers put the id first or last: looking there spares a search through megabytes. */
static unsigned id_of(const char *text, size_t length) {
    const size_t near = 128;
    if (length <= near) return id_in(text, length);
    unsigned id = id_in(text, near);
    return id >= options.first_id ? id : id_in(text + length - near, near);
}

static bool answers(const char *text, size_t length, unsigned id) {
    if (id_of(text, length) == id) return true;
    char wanted[32]; /* anywhere: another message came before it on an SSE stream */
    int wanted_length = snprintf(wanted, sizeof wanted, "\"id\":%09u", id);
    return memmem(text, length, wanted, (size_t)wanted_length) != NULL;
}

static bool says_error(const char *text, size_t length) {
    const char *end = text + length, *p = memmem(text, length, "\"isError\":", 10);
    if (!p) return false;
    for (p += 10; p < end && *p == ' ';) p++;
    return p < end && *p == 't';
}

/* NULL if the body answers that id as it should, else what is wrong with it. */
static const char *fault_of(const char *body, size_t length, unsigned id) {
    const size_t ends = 4096; /* `isError` stands before or after the content */
    if (length < options.min_bytes) return "answer too short";
    if (!answers(body, length, id)) return "answer to another request";
    if (!memmem(body, length, "\"result\":", 9)) return "no result";
    if (says_error(body, length < ends ? length : ends)) return "isError";
    if (length > ends && says_error(body + length - ends, ends)) return "isError";
    if (options.expect && !memmem(body, length, options.expect, strlen(options.expect))) return "expected text missing";
    return NULL;
}

/* ---- the window, and what is counted in it ------------------------------------------------------------------------- */

typedef struct {
    double user_s, system_s;
} CpuTime;

static enum { WARMING, MEASURING, DRAINING, DONE, GIVEN_UP } phase;
static struct {
    double started_s, window_s, wall_s, last_answer_s, drain_s;
    size_t answers; /* since the start, right or wrong */
    size_t errors, connections;
    unsigned *latencies; /* tenths of a microsecond, within the window */
    size_t calls, capacity;
    long long bytes;
    CpuTime cpu_before, cpu_after;
    long rss_kb;
    char first_error[240];
} run;
static int outstanding; /* requests without an answer yet */

static CpuTime cpu_of_pids(void) {
    CpuTime total = {0, 0};
    double ticks = (double)sysconf(_SC_CLK_TCK);
    for (int i = 0; i < options.pid_count; i++) {
        char path[64], text[1024];
        snprintf(path, sizeof path, "/proc/%d/stat", options.pids[i]);
        FILE *file = fopen(path, "r");
        if (!file) continue;
        size_t length = fread(text, 1, sizeof text - 1, file);
        fclose(file);
        text[length] = 0;
        char *after_name = strrchr(text, ')');
        unsigned long user, system;
        /* after the name: state ppid pgrp session tty tpgid flags minflt cminflt majflt cmajflt utime stime */
        if (after_name && sscanf(after_name + 2, "%*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %lu %lu", &user, &system) == 2) {
            total.user_s += (double)user / ticks;
            total.system_s += (double)system / ticks;
        }
    }
    return total;
}

static long rss_of_pids(void) {
    long total = 0;
    for (int i = 0; i < options.pid_count; i++) {
        char path[64], line[256];
        long kb;
        snprintf(path, sizeof path, "/proc/%d/status", options.pids[i]);
        FILE *file = fopen(path, "r");
        if (!file) continue;
        while (fgets(line, sizeof line, file))
            if (sscanf(line, "VmRSS: %ld", &kb) == 1) total += kb;
        fclose(file);
    }
    return total;
}

static void note_error(const char *what, const char *text, size_t length) {
    run.errors++;
    if (run.first_error[0]) return;
    size_t at = (size_t)snprintf(run.first_error, sizeof run.first_error, "%s: ", what);
    for (size_t i = 0; i < length && at < sizeof run.first_error - 1; i++, at++) {
        char c = text[i];
        run.first_error[at] = c < ' ' || c > '~' || c == '"' || c == '\\' ? '.' : c;
    }
    run.first_error[at] = 0;
}

static void note_answer(double sent_s, const char *fault, const char *body, size_t length) {
    double now = now_s();
    outstanding--;
    run.answers++;
    run.last_answer_s = now;
    if (fault) {
        note_error(fault, body, length);
        if (run.errors >= HOPELESS_ERRORS && run.errors == run.answers) phase = GIVEN_UP;
    } else if (phase == MEASURING) {
        if (run.calls == run.capacity) {
            run.capacity = run.capacity ? run.capacity * 2 : 1 << 18;
            run.latencies = checked(realloc(run.latencies, run.capacity * sizeof *run.latencies));
        }
        run.latencies[run.calls++] = (unsigned)((now - sent_s) * 1e7);
        run.bytes += (long long)length;
    }
}

/* Moves to the next phase when it is time; called between batches of events. */
static void advance(void) {
    double now = now_s();
    if (phase < DRAINING && now - run.last_answer_s > STALL_S) {
        note_error("stalled", "no answer for long", 18);
        phase = GIVEN_UP;
    } else if (phase == WARMING) {
        double elapsed_s = now - run.started_s;
        bool all_answered = run.answers >= (size_t)options.in_flight;
        if (elapsed_s >= options.warm_s && (all_answered || elapsed_s >= LONGEST_WARM_S)) {
            run.errors = 0;
            run.cpu_before = cpu_of_pids();
            run.window_s = now_s();
            phase = MEASURING;
        }
    } else if (phase == MEASURING) {
        run.wall_s = now - run.window_s;
        bool enough = run.calls >= options.min_calls || run.wall_s >= options.max_seconds;
        if (run.wall_s >= options.seconds && enough) {
            run.cpu_after = cpu_of_pids();
            run.rss_kb = rss_of_pids();
            run.drain_s = now;
            phase = DRAINING;
        }
    }
    if (phase == DRAINING && (outstanding == 0 || now - run.drain_s > DRAIN_S)) phase = DONE;
}

static bool running(void) { return phase < DONE; }
static bool may_send(void) { return phase < DRAINING; }

/* Requests are small and the peer reads them sooner or later: waiting here is rare and short. */
static bool send_all(int fd, const char *bytes, size_t length) {
    while (length) {
        ssize_t count = write(fd, bytes, length);
        if (count < 0 && errno == EAGAIN) {
            struct pollfd room = {.fd = fd, .events = POLLOUT};
            if (poll(&room, 1, (int)(STALL_S * 1000)) == 1) continue;
        }
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) return false;
        bytes += count;
        length -= (size_t)count;
    }
    return true;
}

static int epoll_fd;

static void watch(int fd, void *owner) {
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = owner};
    if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event)) die("epoll_ctl");
}

/* ---- HTTP -------------------------------------------------------------------------------------------------------- */

typedef struct {
    int fd;
    Request *request; /* shared by slots with the same text: it is stamped and sent in one go */
    unsigned id;
    double sent_s;
    char *in;
    size_t length, capacity;
    size_t head_bytes; /* 0: the head is not complete yet */
    size_t chunk_at;   /* where the next chunk's size line starts */
    long body_bytes;   /* -1: not announced */
    bool chunked, closes;
    size_t body_length;
} Slot;

static int http_port;

static void slot_connect(Slot *slot) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((unsigned short)http_port),
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int on = 1;
    slot->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (slot->fd < 0 || connect(slot->fd, (struct sockaddr *)&address, sizeof address)) die("connect");
    setsockopt(slot->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    fcntl(slot->fd, F_SETFL, O_NONBLOCK);
    watch(slot->fd, slot);
    run.connections++;
}

static void slot_send(Slot *slot) {
    slot->length = slot->head_bytes = slot->chunk_at = slot->body_length = 0;
    slot->body_bytes = -1;
    slot->chunked = slot->closes = false;
    slot->id = stamp(slot->request);
    slot->sent_s = now_s();
    outstanding++;
    send_all(slot->fd, slot->request->bytes, slot->request->length); /* a failure shows as an early end of the answer */
}

static void read_head(Slot *slot) {
    char *blank = memmem(slot->in, slot->length, "\r\n\r\n", 4);
    if (!blank) return;
    slot->head_bytes = slot->chunk_at = (size_t)(blank - slot->in) + 4;
    for (char *line = slot->in; line < blank;) {
        if (!strncasecmp(line, "content-length:", 15)) slot->body_bytes = strtol(line + 15, NULL, 10);
        else if (!strncasecmp(line, "transfer-encoding: chunked", 26)) slot->chunked = true;
        else if (!strncasecmp(line, "connection: close", 17)) slot->closes = true;
        char *newline = memchr(line, '\n', (size_t)(blank + 2 - line));
        line = newline ? newline + 1 : blank;
    }
}

/* Moves whole chunks together, in place, right after the head. True at the last one. */
static bool join_chunks(Slot *slot) {
    for (;;) {
        char *line = slot->in + slot->chunk_at;
        char *line_end = memmem(line, slot->length - slot->chunk_at, "\r\n", 2);
        if (!line_end) return false;
        size_t size = strtoul(line, NULL, 16), data_at = (size_t)(line_end - slot->in) + 2;
        if (data_at + size + 2 > slot->length) return false;
        if (size == 0) return true;
        memmove(slot->in + slot->head_bytes + slot->body_length, slot->in + data_at, size);
        slot->body_length += size;
        slot->chunk_at = data_at + size + 2;
    }
}

static bool answer_complete(Slot *slot, bool at_end) {
    if (!slot->head_bytes) read_head(slot);
    if (!slot->head_bytes) return false;
    if (slot->chunked) return join_chunks(slot);
    slot->body_length = slot->length - slot->head_bytes;
    if (slot->body_bytes >= 0) return slot->body_length >= (size_t)slot->body_bytes;
    return at_end;
}

static void slot_judge(Slot *slot, bool complete) {
    const char *fault = "connection ended early", *shown = slot->in;
    size_t shown_length = slot->length;
    if (complete) {
        fault = slot->length > 12 && !memcmp(slot->in + 9, "200", 3) ? NULL : "HTTP status";
        if (!fault) {
            shown = slot->in + slot->head_bytes;
            shown_length = slot->body_length;
            fault = fault_of(shown, shown_length, slot->id);
        }
    }
    note_answer(slot->sent_s, fault, shown, shown_length);
}

static void slot_read(Slot *slot) {
    if (slot->capacity - slot->length < READ_BYTES) {
        slot->capacity = slot->capacity * 2 + READ_BYTES;
        slot->in = checked(realloc(slot->in, slot->capacity));
    }
    ssize_t count = read(slot->fd, slot->in + slot->length, slot->capacity - slot->length);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
    bool at_end = count <= 0;
    if (!at_end) slot->length += (size_t)count;
    bool complete = answer_complete(slot, at_end);
    if (!complete && !at_end) return;
    slot_judge(slot, complete);
    if (at_end || slot->closes) {
        close(slot->fd);
        if (may_send()) slot_connect(slot);
    }
    if (may_send()) slot_send(slot);
}

static void run_http(void) {
    Slot *slots = checked(calloc((size_t)options.in_flight, sizeof *slots));
    struct epoll_event events[MAX_EVENTS];
    for (int i = 0; i < options.in_flight; i++) {
        slots[i].request = &requests[(size_t)i % request_count];
        slot_connect(&slots[i]);
    }
    for (int i = 0; i < options.in_flight; i++) slot_send(&slots[i]);
    while (running()) {
        int count = epoll_wait(epoll_fd, events, MAX_EVENTS, 50);
        for (int i = 0; i < count && running(); i++) slot_read(events[i].data.ptr);
        advance();
    }
}

/* ---- pipes ------------------------------------------------------------------------------------------------------- */

static double *sent_at; /* by id, modulo ID_RING */
static size_t next_request;

static void line_send(int fd) {
    Request *request = &requests[next_request++ % request_count];
    unsigned id = stamp(request);
    sent_at[id % ID_RING] = now_s();
    outstanding++;
    if (!send_all(fd, request->bytes, request->length)) {
        note_error("the peer closed its input", "", 0);
        phase = GIVEN_UP;
    }
}

/* Lines that answer nothing of ours (notifications, banners) are passed over. */
static void line_read(const char *line, size_t length, int write_fd) {
    unsigned id = id_of(line, length);
    if (id < options.first_id || id >= next_id) return;
    note_answer(sent_at[id % ID_RING], fault_of(line, length, id), line, length);
    if (may_send()) line_send(write_fd);
}

static void run_pipes(int read_fd, int write_fd) {
    size_t capacity = 4 * READ_BYTES, length = 0;
    char *in = checked(malloc(capacity));
    sent_at = checked(calloc(ID_RING, sizeof *sent_at));
    for (size_t i = 0; i < request_count; i++)
        if (requests[i].length * (size_t)options.in_flight > PIPE_ROOM) {
            fputs("loadgen: that much in flight does not fit into a pipe\n", stderr);
            exit(2);
        }
    fcntl(read_fd, F_SETFL, fcntl(read_fd, F_GETFL) | O_NONBLOCK);
    watch(read_fd, NULL);
    for (int i = 0; i < options.in_flight; i++) line_send(write_fd);
    while (running()) {
        struct epoll_event event;
        int ready = epoll_wait(epoll_fd, &event, 1, 50);
        if (ready == 1) {
            if (capacity - length < READ_BYTES) in = checked(realloc(in, capacity *= 2));
            ssize_t count = read(read_fd, in + length, capacity - length);
            if (count == 0) {
                note_error("the peer closed its output", "", 0);
                phase = GIVEN_UP;
            }
            size_t searched = length, line_at = 0;
            if (count > 0) length += (size_t)count;
            for (char *newline; running() && (newline = memchr(in + searched, '\n', length - searched));) {
                size_t end = (size_t)(newline - in);
                line_read(in + line_at, end - line_at, write_fd);
                searched = line_at = end + 1;
            }
            if (line_at) memmove(in, in + line_at, length -= line_at);
        }
        advance();
    }
    fcntl(read_fd, F_SETFL, fcntl(read_fd, F_GETFL) & ~O_NONBLOCK); /* our parent reads from it again */
}

/* ---- result ------------------------------------------------------------------------------------------------------ */

static int by_size(const void *left, const void *right) {
    unsigned a = *(const unsigned *)left, b = *(const unsigned *)right;
    return a < b ? -1 : a > b;
}

static double percentile_us(double share) {
    return run.calls ? run.latencies[(size_t)((double)(run.calls - 1) * share + 0.5)] / 10.0 : 0;
}

static void print_result(void) {
    qsort(run.latencies, run.calls, sizeof *run.latencies, by_size);
    double calls = run.calls ? (double)run.calls : 1, wall_s = run.wall_s > 0 ? run.wall_s : 1;
    printf("{\"given_up\":%s,\"calls\":%zu,\"errors\":%zu,\"first_error\":\"%s\",\"connections\":%zu,\"wall_s\":%.4f,"
           "\"calls_per_s\":%.2f,\"megabytes_per_s\":%.2f,\"p50_us\":%.1f,\"p90_us\":%.1f,\"p99_us\":%.1f,\"max_us\":%.1f,"
           "\"cpu_user_us\":%.3f,\"cpu_system_us\":%.3f,\"rss_kb\":%ld}\n",
        phase == GIVEN_UP ? "true" : "false", run.calls, run.errors, run.first_error, run.connections, run.wall_s,
        (double)run.calls / wall_s, (double)run.bytes / wall_s / 1e6, percentile_us(0.5), percentile_us(0.9),
        percentile_us(0.99), percentile_us(1.0), (run.cpu_after.user_s - run.cpu_before.user_s) * 1e6 / calls,
        (run.cpu_after.system_s - run.cpu_before.system_s) * 1e6 / calls, run.rss_kb);
}

int main(int argc, char **argv) {
    bool http = argc > 2 && !strcmp(argv[1], "http");
    if (!http && (argc < 4 || strcmp(argv[1], "pipes"))) {
        fputs("usage: loadgen http PORT | pipes READ_FD WRITE_FD [options] [PID...]\n", stderr);
        return 2;
    }
    int fixed = http ? 2 : 3;
    read_options(argc - fixed, argv + fixed);
    signal(SIGPIPE, SIG_IGN);
    next_id = options.first_id;
    load_requests();
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    run.started_s = run.last_answer_s = now_s();
    if (http) {
        http_port = atoi(argv[2]);
        run_http();
    } else {
        run_pipes(atoi(argv[2]), atoi(argv[3]));
    }
    print_result();
    return phase == GIVEN_UP;
}
