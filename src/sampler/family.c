#include "sampler/family.h"

#include "base/array.h"
#include "base/clock.h"
#include "process/process_events.h"

#include <stdlib.h>

/* Where the kernel does not tell of births. */
static const uint64_t SCAN_PERIOD_NS = 50 * NS_PER_MS;
/* A fork of Python is Python, but most forks exec at once; only those that live this long as what they are, or end as
 * it, are told of. */
static const uint64_t FORK_GRACE_NS = 5 * NS_PER_MS;
/* How soon, and then ever less often, a process that is no Python is looked at again; and when a child is given up. */
static const uint64_t FIRST_PAUSE_NS = 2 * NS_PER_MS;
static const uint64_t LAST_PAUSE_NS = 50 * NS_PER_MS;
static const uint64_t PATIENT_PAUSE_NS = 500 * NS_PER_MS;
static const uint64_t PATIENCE_NS = 2 * NS_PER_S;
/* That a process has ended is seen before it is told how. */
static const uint64_t END_PATIENCE_NS = 100 * NS_PER_MS;

enum {
    /* So that a storm of births does not keep the others from being sampled. */
    MAX_EVENTS_AT_ONCE = 64,
    MAX_MEMBERS = 1 << 16,
};

struct member {
    pid_t pid;
    pid_t parent_pid;
    struct target *target; /* NULL: no Python (yet) */
    bool started;          /* the sink knows of it */
    bool patient;          /* not given up while it lives */
    bool ended;            /* all that is missing is how */
    uint64_t born_ns;      /* when it was forked or exec'd */
    uint64_t forked_ns;    /* by the kernel's word, as it comes; 0: not known */
    uint64_t program_ns;   /* when it became what it is: the same, or of its last exec */
    uint64_t pause_ns;     /* between the next two tries */
    uint64_t due_ns;       /* of the next try, or of the start; UINT64_MAX: of neither */
    uint64_t missed_before;
};

struct family {
    const struct target_options *options;
    struct sample_sink *sink;
    struct process_events *events; /* NULL: children are not followed */
    struct member *members;
    size_t count;
    size_t capacity;
    uint32_t next_number;
    uint64_t due_ns;
    enum status obstacle;
    uint64_t missed;
};

enum status family_new(const struct target_options *options, struct sample_sink *sink, struct family **result,
                       struct error *error) {
    struct family *family = calloc(1, sizeof *family);
    if (family == NULL)
        return error_set(error, STATUS_FAILED, "there is not enough memory");
    family->options = options;
    family->sink = sink;
    family->due_ns = UINT64_MAX;
    *result = family;
    return STATUS_OK;
}

static enum status close_target(struct member *member) {
    struct target *target = member->target;
    member->target = NULL;
    return target != NULL ? target_close(target) : STATUS_OK;
}

static enum status remove_member(struct family *family, size_t index) {
    enum status status = close_target(&family->members[index]);
    family->members[index] = family->members[--family->count];
    return status;
}

enum status family_free(struct family *family) {
    enum status status = STATUS_OK;
    if (family == NULL)
        return status;
    while (family->count > 0) {
        enum status closed = remove_member(family, family->count - 1);
        status = status == STATUS_OK ? closed : status;
    }
    process_events_free(family->events);
    free(family->members);
    free(family);
    return status;
}

static size_t find_member(const struct family *family, pid_t pid) {
    for (size_t i = 0; i < family->count; i++)
        if (family->members[i].pid == pid)
            return i;
    return SIZE_MAX;
}

static enum status add_member(struct family *family, pid_t pid, pid_t parent_pid, struct member **member) {
    if (family->count == MAX_MEMBERS)
        return STATUS_LIMIT;
    TRY(array_reserve((void **)&family->members, &family->capacity, family->count + 1, sizeof family->members[0]));
    *member = &family->members[family->count++];
    **member = (struct member){.pid = pid, .parent_pid = parent_pid, .due_ns = UINT64_MAX};
    return STATUS_OK;
}

static void set_due(struct family *family, struct member *member, uint64_t due_ns) {
    member->due_ns = due_ns;
    if (due_ns < family->due_ns)
        family->due_ns = due_ns;
}

/* Not Python, not yet, or not to be read; looked at anew from the beginning. */
static void reset_tries(struct family *family, struct member *member, uint64_t now_ns) {
    member->born_ns = now_ns;
    member->pause_ns = FIRST_PAUSE_NS;
    set_due(family, member, now_ns);
}

/* What it did before it became this program is not this program's. */
static void tell_birth(const struct family *family, const struct member *member) {
    if (member->forked_ns != 0 && member->program_ns >= member->forked_ns && family->events != NULL &&
        process_events_complete(family->events))
        target_note_birth(member->target, member->program_ns - member->forked_ns);
}

static enum status start_member(struct family *family, struct member *member, struct error *error) {
    tell_birth(family, member);
    TRY(target_start(member->target, family->next_number, error));
    family->next_number++;
    member->started = true;
    member->missed_before = family->missed;
    member->due_ns = UINT64_MAX;
    return STATUS_OK;
}

enum status family_add(struct family *family, struct process *process, struct error *error) {
    struct member *member = NULL;
    struct target *target = NULL;
    enum status status = add_member(family, process_pid(process), 0, &member);
    if (status == STATUS_OK)
        status = target_open(process, 0, family->options, family->sink, &target, error);
    if (status != STATUS_OK) {
        family->count -= member != NULL;
        process_free(process);
        return error->status != STATUS_OK ? status : error_set(error, status, "there is not enough memory");
    }
    member->target = target;
    member->patient = true;
    return start_member(family, member, error);
}

enum status family_expect(struct family *family, pid_t pid, struct error *error) {
    struct member *member = NULL;
    if (add_member(family, pid, 0, &member) != STATUS_OK)
        return error_set(error, STATUS_FAILED, "there is not enough memory");
    member->patient = true;
    member->forked_ns = member->program_ns = clock_monotonic_ns();
    reset_tries(family, member, clock_monotonic_ns());
    return STATUS_OK;
}

enum status family_follow(struct family *family, pid_t root, struct error *error) {
    return process_events_open(&root, 1, SCAN_PERIOD_NS, &family->events, error);
}

int family_fd(const struct family *family) {
    return family->events != NULL ? process_events_fd(family->events) : -1;
}

uint64_t family_due_ns(const struct family *family) {
    return family->due_ns;
}

uint32_t family_sampled_count(const struct family *family) {
    return family->next_number;
}

enum status family_obstacle(const struct family *family) {
    return family->obstacle;
}

void family_serve(struct family *family) {
    for (size_t i = 0; i < family->count; i++)
        if (family->members[i].started)
            target_serve(family->members[i].target);
}

static void try_later(struct family *family, struct member *member, uint64_t now_ns) {
    uint64_t most_ns = now_ns - member->born_ns < PATIENCE_NS ? LAST_PAUSE_NS : PATIENT_PAUSE_NS;
    set_due(family, member, now_ns + member->pause_ns);
    member->pause_ns = member->pause_ns * 2 < most_ns ? member->pause_ns * 2 : most_ns;
}

/* A child that vfork made is opened anew when it has a memory of its own: what is open of it before stays its
 * parent's. */
static enum status open_with_own_memory(const struct member *member, struct process **process) {
    struct error ignored = {0};
    TRY(process_open(member->pid, process, &ignored));
    bool shares = process_shares_memory(*process, member->parent_pid);
    if (!shares && member->parent_pid == 0)
        return STATUS_OK;
    process_free(*process);
    return shares ? STATUS_NOT_PYTHON : process_open(member->pid, process, &ignored);
}

/* Looks whether it is Python. */
static enum status try_open(struct family *family, struct member *member, uint64_t now_ns) {
    struct error ignored = {0};
    struct process *process = NULL;
    TRY(open_with_own_memory(member, &process));
    enum status status =
        target_open(process, member->parent_pid, family->options, family->sink, &member->target, &ignored);
    if (status != STATUS_OK) {
        process_free(process);
        return status;
    }
    /* Up to 3.10 it says which Python it is only when it has started up. */
    if (target_version(member->target) != 0 || now_ns - member->born_ns >= PATIENCE_NS)
        return STATUS_OK;
    TRY(close_target(member));
    return STATUS_TORN;
}

/* A member whose time has come. *gone: it is none any more. */
static enum status attend_member(struct family *family, struct member *member, uint64_t now_ns, bool *gone) {
    struct error ignored = {0};
    *gone = member->ended;
    if (member->ended)
        return STATUS_OK;
    if (member->target != NULL) {
        /* One that is not to be stopped (traced by another, or ended) cannot be sampled. */
        *gone = start_member(family, member, &ignored) != STATUS_OK;
        return STATUS_OK;
    }
    enum status status = try_open(family, member, now_ns);
    if (status == STATUS_OK) {
        uint64_t start_ns = member->born_ns + FORK_GRACE_NS;
        set_due(family, member, start_ns > now_ns ? start_ns : now_ns);
        return STATUS_OK;
    }
    if (status == STATUS_NO_FILES)
        family->obstacle = status;
    *gone = status == STATUS_NO_PROCESS || (!member->patient && now_ns - member->born_ns >= PATIENCE_NS);
    if (!*gone)
        try_later(family, member, now_ns);
    return STATUS_OK;
}

static enum status attend_due(struct family *family, uint64_t now_ns) {
    if (now_ns < family->due_ns)
        return STATUS_OK;
    family->due_ns = UINT64_MAX;
    for (size_t i = family->count; i-- > 0;) {
        struct member *member = &family->members[i];
        bool gone = false;
        if (member->due_ns <= now_ns)
            TRY(attend_member(family, member, now_ns, &gone));
        if (gone)
            TRY(remove_member(family, i));
        else if (member->due_ns < family->due_ns)
            family->due_ns = member->due_ns;
    }
    return STATUS_OK;
}

/* What was begun for a fork that became another program before it was told of is dropped. */
static enum status take_exec(struct family *family, struct member *member, uint64_t now_ns) {
    if (member->started)
        return target_follow_exec(member->target);
    TRY(close_target(member));
    reset_tries(family, member, now_ns);
    return STATUS_OK;
}

enum status family_note_end(struct family *family, pid_t pid, int wait_status) {
    size_t index = find_member(family, pid);
    if (index != SIZE_MAX && family->members[index].target != NULL)
        target_note_end(family->members[index].target, wait_status);
    bool wanted = family->sink->process_exited != NULL;
    return wanted ? family->sink->process_exited(family->sink, pid, wait_status) : STATUS_OK;
}

static enum status take_end(struct family *family, size_t index) {
    struct member *member = &family->members[index];
    struct error ignored = {0};
    /* It lived too short for a sample, but it lived. */
    if (member->target != NULL && !member->started)
        (void)start_member(family, member, &ignored);
    return remove_member(family, index);
}

static enum status take_event(struct family *family, const struct process_event *event, uint64_t now_ns) {
    size_t index = find_member(family, event->pid);
    struct member *member = index != SIZE_MAX ? &family->members[index] : NULL;
    if (event->kind == PROCESS_EXITED && event->status_known)
        TRY(family_note_end(family, event->pid, event->wait_status));
    if (event->kind == PROCESS_EXITED)
        return member != NULL ? take_end(family, index) : STATUS_OK;
    if (member != NULL)
        member->program_ns = event->time_ns;
    if (member != NULL)
        return event->kind == PROCESS_EXECED ? take_exec(family, member, now_ns) : STATUS_OK;
    enum status status = add_member(family, event->pid, event->parent_pid, &member);
    if (status != STATUS_OK)
        return status == STATUS_LIMIT ? STATUS_OK : status;
    reset_tries(family, member, now_ns);
    member->forked_ns = event->kind == PROCESS_FORKED ? event->time_ns : 0;
    member->program_ns = event->time_ns;
    /* At once: a short life may be over before the next event is taken. */
    bool gone = false;
    TRY(attend_member(family, member, now_ns, &gone));
    return gone ? remove_member(family, family->count - 1) : STATUS_OK;
}

static enum status attend_events(struct family *family, uint64_t now_ns, bool *more) {
    struct process_event event;
    *more = false;
    for (int i = 0; family->events != NULL && i < MAX_EVENTS_AT_ONCE; i++) {
        enum status status = process_events_next(family->events, &event);
        if (status == STATUS_NOT_FOUND)
            return STATUS_OK;
        TRY(status);
        TRY(take_event(family, &event, now_ns));
    }
    *more = family->events != NULL;
    return STATUS_OK;
}

enum status family_attend(struct family *family, uint64_t now_ns) {
    bool more = false;
    /* Events first: who has exec'd meanwhile is not to be told of as what it was. */
    TRY(attend_events(family, now_ns, &more));
    TRY(attend_due(family, now_ns));
    if (more)
        family->due_ns = now_ns;
    return STATUS_OK;
}

/* Its parent, which strobe is, or the kernel is going to tell how it ended. */
static bool is_end_awaited(const struct family *family, const struct member *member) {
    bool told = family->events != NULL && process_events_complete(family->events);
    return member->forked_ns != 0 && (member->patient || told) && !target_has_end(member->target);
}

static enum status lose_member(struct family *family, size_t index, uint64_t now_ns) {
    struct member *member = &family->members[index];
    if (!is_end_awaited(family, member))
        return remove_member(family, index);
    member->ended = true;
    set_due(family, member, now_ns + END_PATIENCE_NS);
    return target_note_gone(member->target, now_ns);
}

enum status family_look(struct family *family, uint64_t now_ns, uint64_t missed) {
    family->missed = missed;
    for (size_t i = family->count; i-- > 0;) {
        struct member *member = &family->members[i];
        if (!member->started || member->ended)
            continue;
        target_counters(member->target)->missed = missed - member->missed_before;
        enum status status = target_look(member->target, now_ns);
        bool given_up = !member->patient && target_lost_ns(member->target, now_ns) >= PATIENCE_NS;
        if (status == STATUS_NO_PROCESS)
            TRY(lose_member(family, i, now_ns));
        else if (status == STATUS_OK && given_up)
            TRY(remove_member(family, i));
        else
            TRY(status);
    }
    return family->count > 0 ? STATUS_OK : STATUS_NO_PROCESS;
}
