#include "sampler/sleepers.h"

enum {
    /* For fewer it is not worth it. */
    LEAST_SLEEPERS = 8,
    /* Where some wake up all the time, it is tried ever less often. */
    MAX_PAUSE_SHIFT = 6,
};

/* One that was seen asleep, and not just now and then. Who had the GIL last may take it again without a turn. */
static bool is_sleeper(const struct target_thread *thread, const struct sleepers_scene *scene) {
    if (thread->run != THREAD_IDLE || thread->assumed_idle || thread->moves > 0 || thread->gil_request == 1)
        return false;
    for (size_t i = 0; i < scene->interp_count; i++)
        if (scene->interps[i].gil_last_holder == thread->state.address)
            return false;
    return true;
}

static bool is_told(const struct target_thread *thread) {
    return thread->watch != NULL && thread->activity_known && target_thread_is_looked_at(thread);
}

/* Who sleeps. Whether they are many, and those that run few. */
static bool find_sleepers(const struct sleepers_scene *scene) {
    size_t sleeping = 0, running = 0;
    for (size_t i = 0; i < scene->thread_count; i++) {
        struct target_thread *thread = scene->threads[i];
        bool told = is_told(thread);
        thread->sleeps = told && is_sleeper(thread, scene);
        sleeping += thread->sleeps;
        running += told && !thread->sleeps;
    }
    return sleeping >= LEAST_SLEEPERS && running <= sleeping / 4;
}

static enum status read_turns(const struct sleepers_scene *scene, uint64_t *turns) {
    *turns = 0;
    for (size_t i = 0; i < scene->interp_count; i++) {
        struct gil_turns of_one;
        TRY(interp_read_turns(scene->runtime, &scene->interps[i], &of_one));
        *turns = (*turns ^ of_one.last_holder) * UINT64_C(0x9e3779b97f4a7c15) + of_one.switches;
    }
    return STATUS_OK;
}

/* The threads' clocks before the process's: what they use in between is taken for the others', not the other way
 * round. */
static enum status read_outside(const struct sleepers_scene *scene, uint64_t *outside_ns) {
    uint64_t running_ns = 0, process_ns = 0;
    for (size_t i = 0; i < scene->thread_count; i++) {
        struct target_thread *thread = scene->threads[i];
        if (thread->sleeps || !is_told(thread))
            continue;
        TRY(thread_watch_activity(thread->watch, &thread->fresh));
        thread->fresh_ns = scene->now_ns;
        running_ns += thread->fresh.cpu_ns;
    }
    TRY(process_cpu_clock(scene->process, &process_ns));
    *outside_ns = process_ns - running_ns;
    return STATUS_OK;
}

static uint64_t sum_asleep(const struct sleepers_scene *scene) {
    uint64_t sum_ns = 0;
    for (size_t i = 0; i < scene->thread_count; i++)
        if (scene->threads[i]->sleeps)
            sum_ns += scene->threads[i]->activity.cpu_ns;
    return sum_ns;
}

/* After a pause the first view has nothing to be held against. */
static void count_failure(struct sleepers *sleepers) {
    if (sleepers->resumed)
        return;
    sleepers->failures += sleepers->failures < MAX_PAUSE_SHIFT;
    sleepers->pause = (1U << sleepers->failures) / 2 - 1;
}

static bool all_have_gils(const struct sleepers_scene *scene) {
    for (size_t i = 0; i < scene->interp_count; i++)
        if (scene->interps[i].gil == 0)
            return false;
    return scene->interp_count > 0;
}

static void unmark(struct sleepers *sleepers, const struct sleepers_scene *scene) {
    for (size_t i = 0; sleepers->marked && i < scene->thread_count; i++)
        scene->threads[i]->sleeps_on = false;
    sleepers->marked = false;
}

static void mark(struct sleepers *sleepers, const struct sleepers_scene *scene) {
    sleepers->marked = true;
    sleepers->failures = 0;
    for (size_t i = 0; i < scene->thread_count; i++)
        scene->threads[i]->sleeps_on = scene->threads[i]->sleeps;
}

void sleepers_begin(struct sleepers *sleepers, const struct sleepers_scene *scene) {
    sleepers->asked = false;
    unmark(sleepers, scene);
    if (scene->thread_count < LEAST_SLEEPERS || !all_have_gils(scene) || !find_sleepers(scene))
        return;
    if (sleepers->pause > 0) {
        sleepers->resumed = --sleepers->pause == 0;
        return;
    }
    uint64_t turns = 0;
    if (read_outside(scene, &sleepers->outside_ns) != STATUS_OK || read_turns(scene, &turns) != STATUS_OK)
        return;
    bool same =
        sleepers->known && turns == sleepers->turns && sleepers->outside_ns - sum_asleep(scene) == sleepers->others_ns;
    sleepers->turns = turns;
    sleepers->asked = !same;
    if (same)
        mark(sleepers, scene);
}

/* If none has run while each was asked, what they said is of one instant. */
void sleepers_end(struct sleepers *sleepers, const struct sleepers_scene *scene) {
    uint64_t outside_ns = 0;
    if (!sleepers->asked)
        return;
    count_failure(sleepers);
    sleepers->resumed = false;
    if (read_outside(scene, &outside_ns) != STATUS_OK || outside_ns != sleepers->outside_ns)
        return;
    sleepers->known = true;
    sleepers->others_ns = outside_ns - sum_asleep(scene);
}
