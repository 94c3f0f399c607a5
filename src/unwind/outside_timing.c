#include "unwind/outside.h"

enum {
    MAX_COUNTED = 1 << 10,
    BRIEF_PARTS = 8,
    /* To be convinced at once. */
    STEADY_PARTS = 32,
    CONVINCING_RUNS = 16,
};

/* What runs the frames outside: a function, by the path to it, at one of its instructions. */
static uint32_t runner_key(const struct walk *walk) {
    return seen_calls_key(walk->tracker->stack.frames[walk->top].path, (uint32_t)outside_site(walk));
}

void outside_count(struct outside_count *count, uint32_t seen, uint32_t matched) {
    count->seen += seen;
    count->matched += matched;
    if (count->seen < MAX_COUNTED)
        return;
    count->seen /= 2;
    count->matched /= 2;
}

/* NULL: there is none yet. */
static struct outside_count *lasting_of(const struct walk *walk, uint32_t key) {
    struct stack_tracker *tracker = walk->tracker;
    for (size_t i = 0; i < TRACKER_COUNTS; i++)
        if (tracker->lasting[i].key == key && tracker->lasting[i].seen > 0)
            return &tracker->lasting[i];
    return NULL;
}

static struct outside_count *make_lasting(const struct walk *walk, uint32_t key) {
    struct outside_count *lasting = lasting_of(walk, key);
    if (lasting != NULL)
        return lasting;
    lasting = &walk->tracker->lasting[walk->tracker->lasting_count++ % TRACKER_COUNTS];
    *lasting = (struct outside_count){.key = key};
    return lasting;
}

static struct outside_count *steady_of(const struct walk *walk) {
    uint64_t hash = walk->tracker->stack.frames[walk->top].address * UINT64_C(0x9e3779b97f4a7c15);
    return &walk->tracker->steady[(hash >> 32) % TRACKER_COUNTS];
}

void outside_count_run(const struct walk *walk, bool late) {
    if (late || walk->top == SIZE_MAX || walk->tracker->paused)
        return;
    uint32_t key = runner_key(walk);
    struct outside_count *lasting = make_lasting(walk, key), *steady = steady_of(walk);
    outside_count(lasting, 1, outside_still_waits(walk));
    /* Two places of the stack that share one are as if two functions took turns there: less is believed then. */
    outside_count(steady, 1, steady->key == key);
    steady->key = key;
}

/* All but one of so many parts at the most. */
static bool is_mostly(const struct outside_count *count, uint32_t parts) {
    return count->matched * parts >= count->seen * (parts - 1);
}

bool outside_can_be_of_another(const struct walk *walk) {
    if (walk->top == SIZE_MAX || walk->tracker->paused)
        return false;
    const struct outside_count *lasting = lasting_of(walk, runner_key(walk));
    return !(lasting != NULL && is_mostly(lasting, BRIEF_PARTS)) && !is_mostly(steady_of(walk), BRIEF_PARTS);
}

bool outside_is_convincing(const struct walk *walk) {
    if (walk->top == SIZE_MAX)
        return false;
    const struct outside_count *lasting = lasting_of(walk, runner_key(walk)), *steady = steady_of(walk);
    return (lasting != NULL && lasting->seen >= CONVINCING_RUNS && is_mostly(lasting, BRIEF_PARTS)) ||
           (steady->seen >= CONVINCING_RUNS && is_mostly(steady, STEADY_PARTS));
}
