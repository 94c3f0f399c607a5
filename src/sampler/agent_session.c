#include "sampler/agent_session.h"

#include "base/array.h"
#include "base/clock.h"
#include "sampler/agent_process.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* How often processes are asked whether they live, and the folder is searched though nothing tells of a change. */
static const uint64_t ALIVE_PERIOD_NS = 50 * NS_PER_MS;
static const uint64_t SEARCH_PERIOD_NS = 500 * NS_PER_MS;
/* How long a fork may take to exec. */
static const uint64_t FORK_GRACE_NS = 20 * NS_PER_MS;
/* How long a region may take from its making to its being finished. */
static const uint64_t PATIENCE_NS = 10 * NS_PER_S;
/* How long what outlives the command is waited for. */
static const uint64_t PARTING_NS = 200 * NS_PER_MS;
static const uint64_t PARTING_PERIOD_NS = 5 * NS_PER_MS;

enum { HAD_AGENT = 1, COMPLAINED_OF };

enum {
    MAX_PENDING = 4096,
    MAX_PROCESSES = 1 << 16,
    MAX_COMPLAINTS = 8,
    COMPLAINT_BYTES = WIRE_REASON_BYTES + 128,
};

/* A file that is no finished region yet. */
struct pending {
    char name[AGENT_NAME_BYTES];
    uint64_t since_ns;
};

struct agent_session {
    struct agent_folder folder;
    struct sample_sink *sink; /* NULL until it is started */
    bool native_boundaries;
    pid_t only_pid; /* 0: all processes are of interest */
    struct agent_process **processes;
    size_t count, capacity;
    struct map files; /* those that are known, by process id and number */
    struct map seen;  /* ids of all processes that had an agent or are complained of: which */
    struct pending *pending;
    size_t pending_count, pending_capacity;
    uint32_t process_count;
    uint32_t last_serial;
    struct code_files *code_files;
    uint64_t from_ns, now_ns, alive_ns, searched_ns;
    struct sample_looks looks; /* at the processes that have ended */
    void *scratch;
    enum status news_status; /* of what the folder's callback could not return */
    char complaints[MAX_COMPLAINTS][COMPLAINT_BYTES];
    size_t complaint_count, complaints_given;
};

enum status agent_session_open(struct agent_session **result, struct error *error) {
    struct agent_session *session = calloc(1, sizeof *session);
    void *scratch = aligned_alloc(64, WIRE_RING_BYTES);
    if (session == NULL || scratch == NULL || code_files_new(&session->code_files) != STATUS_OK) {
        free(session);
        free(scratch);
        return error_set(error, STATUS_FAILED, "there is not enough memory");
    }
    session->scratch = scratch;
    session->from_ns = clock_monotonic_ns();
    session->last_serial = AGENT_CODE_FIRST_SERIAL;
    enum status status = agent_folder_open(&session->folder, error);
    if (status != STATUS_OK) {
        code_files_free(session->code_files);
        free(scratch);
        free(session);
        return status;
    }
    *result = session;
    return STATUS_OK;
}

void agent_session_close(struct agent_session *session) {
    if (session == NULL)
        return;
    agent_folder_close(&session->folder);
    code_files_free(session->code_files);
    free(session->processes);
    free(session->pending);
    map_release(&session->files);
    map_release(&session->seen);
    free(session->scratch);
    free(session);
}

const char *agent_session_folder(const struct agent_session *session) {
    return session->folder.path;
}

void agent_session_start(struct agent_session *session, struct sample_sink *sink, bool native_boundaries) {
    session->sink = sink;
    session->native_boundaries = native_boundaries;
}

void agent_session_ignore_others(struct agent_session *session, pid_t pid) {
    session->only_pid = pid;
}

struct sample_looks agent_session_looks(const struct agent_session *session) {
    return session->looks;
}

uint32_t agent_session_process_count(const struct agent_session *session) {
    return session->process_count;
}

const char *agent_session_next_complaint(struct agent_session *session) {
    return session->complaints_given < session->complaint_count ? session->complaints[session->complaints_given++]
                                                                : NULL;
}

static void complain(struct agent_session *session, pid_t pid, const char *reason) {
    if (session->complaint_count < MAX_COMPLAINTS)
        (void)snprintf(session->complaints[session->complaint_count++], COMPLAINT_BYTES,
                       "the agent does not work in process %d: %s; it is sampled from outside, as with --no-agent",
                       (int)pid, reason);
}

void agent_session_note_missed(struct agent_session *session, pid_t pid, bool certain) {
    uint64_t known = 0;
    (void)map_get(&session->seen, (uint64_t)pid, &known);
    if ((known == 0 || (certain && known == HAD_AGENT)) && session->complaint_count < MAX_COMPLAINTS)
        (void)snprintf(session->complaints[session->complaint_count++], COMPLAINT_BYTES,
                       "the agent was not loaded into process %d (its environment was emptied, or it became another "
                       "user or got another root): it was sampled from outside, as with --no-agent",
                       (int)pid);
}

static uint64_t key_of(const char *name) {
    pid_t pid = 0;
    uint32_t incarnation = 0;
    (void)agent_folder_parse_name(name, &pid, &incarnation);
    return (uint64_t)pid << 32 | incarnation;
}

static void note_file(void *context, const char *name) {
    struct agent_session *session = context;
    pid_t pid = 0;
    uint32_t incarnation = 0;
    uint64_t ignored = 0;
    if (!agent_folder_parse_name(name, &pid, &incarnation) || map_get(&session->files, key_of(name), &ignored) ||
        session->pending_count >= MAX_PENDING || session->news_status != STATUS_OK)
        return;
    session->news_status = array_reserve((void **)&session->pending, &session->pending_capacity,
                                         session->pending_count + 1, sizeof session->pending[0]);
    if (session->news_status == STATUS_OK)
        session->news_status = map_set(&session->files, key_of(name), 1);
    if (session->news_status != STATUS_OK)
        return;
    struct pending *pending = &session->pending[session->pending_count++];
    *pending = (struct pending){.since_ns = session->now_ns};
    (void)snprintf(pending->name, sizeof pending->name, "%s", name);
}

static void remove_file(struct agent_session *session, const char *name) {
    (void)unlinkat(session->folder.fd, name, 0);
    (void)map_remove(&session->files, key_of(name));
}

static enum status drain_process(struct agent_session *session, struct agent_process *process, bool everything,
                                 uint64_t now_ns) {
    return agent_process_drain(process, session->sink, session->native_boundaries, session->scratch, everything,
                               now_ns);
}

static void complain_of_threads(struct agent_session *session, const struct agent_process *process) {
    if (process->no_slot_seen > 0 && session->complaint_count < MAX_COMPLAINTS)
        (void)snprintf(
            session->complaints[session->complaint_count++], COMPLAINT_BYTES,
            "%llu thread%s of process %d had no agent: there is room for %d at a time, and each takes memory "
            "(/dev/shm, ulimit -v) and a timer (ulimit -i)",
            (unsigned long long)process->no_slot_seen, process->no_slot_seen == 1 ? "" : "s", (int)process->sampled.pid,
            (int)WIRE_SLOTS);
    if (process->no_event_seen > 0 && session->complaint_count < MAX_COMPLAINTS)
        (void)snprintf(session->complaints[session->complaint_count++], COMPLAINT_BYTES,
                       "%llu threads of process %d got no perf event: their CPU clocks alone were there",
                       (unsigned long long)process->no_event_seen, (int)process->sampled.pid);
}

/* It has ended or become another program: what its rings hold is all there will ever be. */
static enum status end_process(struct agent_session *session, size_t index, uint64_t now_ns) {
    struct agent_process *process = session->processes[index];
    enum status status = drain_process(session, process, true, now_ns);
    complain_of_threads(session, process);
    session->looks.cpu_ns += process->looks.cpu_ns;
    if (process->looks.longest_ns > session->looks.longest_ns)
        session->looks.longest_ns = process->looks.longest_ns;
    session->processes[index] = session->processes[--session->count];
    remove_file(session, process->name);
    if (process->sampled.end_ns == 0)
        process->sampled.end_ns = now_ns;
    enum status ended = agent_process_free(process, session->sink);
    return status == STATUS_OK ? ended : status;
}

/* Who has exec'd is told of anew, by the same process id. */
static enum status end_predecessors(struct agent_session *session, pid_t pid, bool *was_told, uint64_t now_ns) {
    for (size_t i = session->count; i-- > 0;) {
        if (session->processes[i]->sampled.pid != pid)
            continue;
        *was_told |= session->processes[i]->told;
        TRY(end_process(session, i, now_ns));
    }
    return STATUS_OK;
}

/* Takes over the region. */
static enum status take_region(struct agent_session *session, const char *name, struct agent_region *region,
                               uint64_t now_ns) {
    const struct agent_origin origin = {&session->last_serial, session->from_ns, session->code_files};
    struct agent_process *process = NULL;
    TRY(agent_process_new(name, region, &origin, &process));
    bool goes_on = false;
    enum status status = end_predecessors(session, process->sampled.pid, &goes_on, now_ns);
    if (status == STATUS_OK)
        status = map_set(&session->seen, (uint64_t)process->sampled.pid, HAD_AGENT);
    if (status == STATUS_OK)
        status = array_reserve((void **)&session->processes, &session->capacity, session->count + 1,
                               sizeof(struct agent_process *));
    if (status != STATUS_OK || session->count == MAX_PROCESSES) {
        enum status freed = agent_process_free(process, session->sink);
        return status == STATUS_OK ? freed : status;
    }
    session->processes[session->count++] = process;
    session->process_count++;
    /* Before the process itself is found to have ended: it would be another one then. */
    process->settled |= goes_on;
    return goes_on ? drain_process(session, process, false, now_ns) : STATUS_OK;
}

/* It is sampled from outside, if there are files for that, and is not to be told of twice when there are again. */
static enum status note_no_files(struct agent_session *session, const char *name) {
    pid_t pid = 0;
    uint32_t incarnation = 0;
    (void)agent_folder_parse_name(name, &pid, &incarnation);
    complain(session, pid, "too many open files (raise 'ulimit -Hn')");
    return map_set(&session->seen, (uint64_t)pid, COMPLAINED_OF);
}

/* *settled: it need not be tried again. */
static enum status try_pending(struct agent_session *session, const struct pending *pending, uint64_t now_ns,
                               bool *settled) {
    struct agent_region *region = NULL;
    enum status status = agent_region_open(session->folder.fd, pending->name, &region);
    if (status == STATUS_OK && session->only_pid != 0 && region->facts.pid != session->only_pid) {
        if (region->is_whole)
            agent_region_control(region, WIRE_CONTROL_PAUSE);
        agent_region_close(region);
        status = STATUS_NOT_FOUND;
    }
    *settled = status != STATUS_TORN || now_ns - pending->since_ns >= PATIENCE_NS;
    if (status == STATUS_NO_FILES && (status = note_no_files(session, pending->name)) == STATUS_OK)
        status = STATUS_NOT_FOUND;
    if (status == STATUS_OK && region->is_whole)
        return take_region(session, pending->name, region, now_ns);
    if (status == STATUS_OK) {
        complain(session, region->facts.pid, region->facts.reason);
        status = map_set(&session->seen, (uint64_t)region->facts.pid, COMPLAINED_OF);
        agent_region_close(region);
    }
    if (*settled)
        remove_file(session, pending->name);
    return status == STATUS_FAILED ? status : STATUS_OK;
}

/* By process id, then by how many programs it has been. */
static int compare_pending(const void *left, const void *right) {
    uint64_t first = key_of(((const struct pending *)left)->name);
    uint64_t second = key_of(((const struct pending *)right)->name);
    return (first > second) - (first < second);
}

static enum status try_all_pending(struct agent_session *session, uint64_t now_ns) {
    if (session->pending_count > 1)
        qsort(session->pending, session->pending_count, sizeof session->pending[0], compare_pending);
    size_t left = 0;
    enum status status = STATUS_OK;
    for (size_t i = 0; i < session->pending_count; i++) {
        bool settled = false;
        if (status == STATUS_OK)
            status = try_pending(session, &session->pending[i], now_ns, &settled);
        if (!settled)
            session->pending[left++] = session->pending[i];
    }
    session->pending_count = left;
    return status;
}

static enum status look_for_files(struct agent_session *session, bool search, uint64_t now_ns) {
    session->now_ns = now_ns;
    session->news_status = STATUS_OK;
    if (search || now_ns - session->searched_ns >= SEARCH_PERIOD_NS || agent_folder_has_changed(&session->folder)) {
        session->searched_ns = now_ns;
        agent_folder_search(&session->folder, note_file, session);
    }
    return session->news_status;
}

enum status agent_session_attend(struct agent_session *session, uint64_t now_ns) {
    TRY(look_for_files(session, false, now_ns));
    return session->pending_count > 0 ? try_all_pending(session, now_ns) : STATUS_OK;
}

/* Whether its agent has switched itself off, which is said: what more there is to see is seen from outside. */
static bool is_off(struct agent_session *session, struct agent_process *process) {
    char reason[WIRE_REASON_BYTES];
    if (agent_region_state(process->region) != WIRE_OFF)
        return false;
    agent_region_reason(process->region, reason);
    complain(session, process->sampled.pid, reason);
    (void)!map_set(&session->seen, (uint64_t)process->sampled.pid, COMPLAINED_OF);
    return true;
}

/* A fork that has not exec'd by now is a process of its own. False: it has become a program without the agent, or with
 * one that is going to tell of itself. */
static bool is_settled(struct agent_process *process, uint64_t now_ns) {
    /* Soon: what it uses until that is known is told by nobody. */
    if (agent_process_has_execed(process))
        return false;
    if (process->settled || now_ns - process->sampled.start_ns < FORK_GRACE_NS)
        return true;
    process->settled = agent_process_is_same(process);
    return process->settled;
}

enum status agent_session_drain(struct agent_session *session, uint64_t now_ns) {
    TRY(agent_session_attend(session, now_ns));
    bool ask = now_ns - session->alive_ns >= ALIVE_PERIOD_NS;
    session->alive_ns = ask ? now_ns : session->alive_ns;
    for (size_t i = session->count; i-- > 0;) {
        struct agent_process *process = session->processes[i];
        /* Asked first: what it wrote before it died is there by now. */
        bool alive = (!ask || agent_process_alive(process)) && is_settled(process, now_ns);
        if (!is_off(session, process) && alive)
            TRY(drain_process(session, process, false, now_ns));
        else
            TRY(end_process(session, i, now_ns));
    }
    return STATUS_OK;
}

enum status agent_session_await_last(struct agent_session *session) {
    uint64_t now_ns = clock_monotonic_ns(), until_ns = now_ns + PARTING_NS;
    for (; session->count > 0 && now_ns < until_ns; now_ns = clock_monotonic_ns()) {
        clock_sleep_until(now_ns + PARTING_PERIOD_NS);
        session->alive_ns = 0;
        TRY(agent_session_drain(session, clock_monotonic_ns()));
    }
    if (session->count > 0 && session->complaint_count < MAX_COMPLAINTS)
        (void)snprintf(session->complaints[session->complaint_count++], COMPLAINT_BYTES,
                       "the command has ended; %zu process%s that it started (%d%s) run%s on, not sampled any more",
                       session->count, session->count == 1 ? "" : "es", (int)session->processes[0]->sampled.pid,
                       session->count == 1 ? "" : ", …", session->count == 1 ? "s" : "");
    return STATUS_OK;
}

enum status agent_session_finish(struct agent_session *session) {
    uint64_t now_ns = clock_monotonic_ns();
    enum status status = look_for_files(session, true, now_ns);
    if (status == STATUS_OK)
        status = try_all_pending(session, now_ns);
    while (session->count > 0) {
        size_t last = session->count - 1;
        (void)is_off(session, session->processes[last]);
        agent_region_control(session->processes[last]->region, WIRE_CONTROL_PAUSE);
        enum status ended = end_process(session, last, clock_monotonic_ns());
        status = status == STATUS_OK ? ended : status;
    }
    return status;
}
