#include "sampler/roster.h"

#include "base/clock.h"
#include "process/process.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* What the sink behind the roster heard. */
struct heard {
    struct sample_sink sink; /* must be first */
    int processes, ended_processes, threads, renamed, ended_threads, samples, missed;
    struct sampled_process last_process;
    struct sampled_thread last_thread;
    char last_name[64];
    struct sample_counters counters;
    const struct sampled_thread *sampled;
};

static enum status hear_process(struct sample_sink *sink, struct sampled_process *process) {
    struct heard *heard = (struct heard *)sink;
    heard->processes++;
    heard->last_process = *process;
    return STATUS_OK;
}

static enum status hear_process_end(struct sample_sink *sink, struct sampled_process *process,
                                    const struct sample_counters *counters) {
    struct heard *heard = (struct heard *)sink;
    heard->ended_processes++;
    heard->last_process = *process;
    heard->counters = *counters;
    return STATUS_OK;
}

static void keep_thread(struct heard *heard, const struct sampled_thread *thread) {
    heard->last_thread = *thread;
    (void)snprintf(heard->last_name, sizeof heard->last_name, "%s", thread->name != NULL ? thread->name : "");
}

static enum status hear_thread(struct sample_sink *sink, struct sampled_thread *thread) {
    ((struct heard *)sink)->threads++;
    keep_thread((struct heard *)sink, thread);
    return STATUS_OK;
}

static enum status hear_name(struct sample_sink *sink, struct sampled_thread *thread) {
    ((struct heard *)sink)->renamed++;
    keep_thread((struct heard *)sink, thread);
    return STATUS_OK;
}

static enum status hear_thread_end(struct sample_sink *sink, struct sampled_thread *thread) {
    ((struct heard *)sink)->ended_threads++;
    keep_thread((struct heard *)sink, thread);
    return STATUS_OK;
}

static enum status hear_sample(struct sample_sink *sink, const struct sample *sample) {
    ((struct heard *)sink)->samples++;
    ((struct heard *)sink)->sampled = sample->thread;
    return STATUS_OK;
}

static enum status hear_time(struct sample_sink *sink, uint64_t now_ns) {
    (void)sink;
    (void)now_ns;
    return STATUS_OK;
}

static enum status hear_forgotten(struct sample_sink *sink, struct sampled_process *process) {
    (void)sink;
    (void)process;
    return STATUS_OK;
}

static void hear_missed(void *context, const struct sampled_process *process, bool certain) {
    (void)process;
    (void)certain;
    ((struct heard *)context)->missed++;
}

static struct roster *open_roster(struct heard *heard, struct sample_sink *sides[2]) {
    *heard = (struct heard){.sink = {.process_started = hear_process,
                                     .process_ended = hear_process_end,
                                     .thread_started = hear_thread,
                                     .thread_renamed = hear_name,
                                     .thread_ended = hear_thread_end,
                                     .sample = hear_sample,
                                     .idle = hear_time,
                                     .code_forgotten = hear_forgotten}};
    struct roster *roster = roster_new(&heard->sink, hear_missed, heard);
    assert_non_null(roster);
    sides[0] = roster_sink(roster, ROSTER_INSIDE);
    sides[1] = roster_sink(roster, ROSTER_OUTSIDE);
    return roster;
}

static void start(struct sample_sink *side, struct sampled_process *process) {
    assert_int_equal(side->process_started(side, process), STATUS_OK);
}

static void end(struct sample_sink *side, struct sampled_process *process, uint64_t taken) {
    const struct sample_counters counters = {.taken = taken, .errors = 1};
    assert_int_equal(side->process_ended(side, process, &counters), STATUS_OK);
}

static void pass(struct sample_sink *side, uint64_t now_ns) {
    assert_int_equal(side->idle(side, now_ns), STATUS_OK);
}

static void start_thread(struct sample_sink *side, struct sampled_thread *thread) {
    assert_int_equal(side->thread_started(side, thread), STATUS_OK);
}

static void end_thread(struct sample_sink *side, struct sampled_thread *thread) {
    assert_int_equal(side->thread_ended(side, thread), STATUS_OK);
}

/* Whoever of the two comes and goes first. */
static void see_one_of_each(int first, int second, int first_to_end) {
    struct heard heard;
    struct sample_sink *sides[2];
    struct roster *roster = open_roster(&heard, sides);
    struct sampled_process processes[2] = {{.pid = 7, .version = 5, .start_ns = 100}, {.pid = 7, .start_ns = 200}};
    struct sampled_thread threads[2] = {
        {.process = &processes[0], .native_id = 8, .thread_id = 9, .interpreter = -1, .cpu_ns = 50},
        {.process = &processes[1], .native_id = 8, .interpreter = 0, .name = "MainThread", .cpu_ns = 40},
    };
    start(sides[first], &processes[first]);
    start(sides[second], &processes[second]);
    start_thread(sides[first], &threads[first]);
    start_thread(sides[second], &threads[second]);
    assert_int_equal(heard.last_process.number, 0);
    assert_int_equal(heard.last_process.start_ns, 100);
    assert_int_equal(heard.last_process.version, 5);
    assert_int_equal(heard.threads, 1);
    assert_int_equal(heard.last_thread.thread_id, 9);
    assert_int_equal(heard.last_thread.interpreter, 0);
    assert_string_equal(heard.last_name, "MainThread");
    const struct sampled_thread *seen[2];
    for (int i = 0; i < 2; i++) {
        const struct sample sample = {.thread = &threads[i]};
        assert_int_equal(sides[i]->sample(sides[i], &sample), STATUS_OK);
        seen[i] = heard.sampled;
    }
    assert_ptr_equal(seen[0], seen[1]);
    end_thread(sides[first_to_end], &threads[first_to_end]);
    assert_int_equal(heard.ended_threads, 0);
    end_thread(sides[!first_to_end], &threads[!first_to_end]);
    assert_int_equal(heard.ended_threads, 1);
    assert_int_equal(heard.last_thread.cpu_ns, 50);
    end(sides[first_to_end], &processes[first_to_end], 3);
    assert_int_equal(heard.ended_processes, 0);
    end(sides[!first_to_end], &processes[!first_to_end], 4);
    assert_int_equal(heard.ended_processes, 0);
    pass(sides[first], clock_monotonic_ns() + NS_PER_S);
    assert_int_equal(heard.ended_processes, 1);
    assert_int_equal(heard.counters.taken, 7);
    assert_int_equal(heard.counters.errors, 2);
    assert_int_equal(roster_process_count(roster), 1);
    assert_int_equal(roster_free(roster), STATUS_OK);
    assert_int_equal(heard.missed, 0);
}

static void test_counters_are_told_before_the_end(void **state) {
    (void)state;
    struct heard heard;
    struct sample_sink *sides[2];
    struct roster *roster = open_roster(&heard, sides);
    const struct sample_counters inside = {.taken = 3, .errors = 1}, outside = {.taken = 40, .missed = 2};
    struct sampled_process processes[2] = {{.pid = 7, .counters = &inside}, {.pid = 7, .counters = &outside}};
    for (int i = 0; i < 2; i++)
        start(sides[i], &processes[i]);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(sides[1]->idle(sides[1], 1), STATUS_OK);
        const struct sample_counters *sum = heard.last_process.counters;
        assert_int_equal(sum->taken, i == 0 ? 43 : 45);
        assert_int_equal(sum->missed, 2);
        assert_int_equal(sum->errors, 1);
        if (i == 0)
            end(sides[0], &processes[0], 5);
    }
    end(sides[1], &processes[1], 50);
    assert_int_equal(roster_free(roster), STATUS_OK);
    assert_int_equal(heard.counters.taken, 55);
}

static void test_two_sides_are_one(void **state) {
    (void)state;
    for (int i = 0; i < 8; i++)
        see_one_of_each(i & 1, !(i & 1), i >> 1 & 1);
}

static void test_one_side_alone(void **state) {
    (void)state;
    for (int side = 0; side < 2; side++) {
        struct heard heard;
        struct sample_sink *sides[2];
        struct roster *roster = open_roster(&heard, sides);
        struct sampled_process process = {.pid = 7};
        struct sampled_thread thread = {.process = &process, .native_id = 8};
        start(sides[side], &process);
        start_thread(sides[side], &thread);
        end_thread(sides[side], &thread);
        end(sides[side], &process, 1);
        /* The other may be slower; then it is not waited for. */
        assert_int_equal(heard.ended_processes, 0);
        assert_int_equal(sides[1]->idle(sides[1], UINT64_MAX), STATUS_OK);
        assert_int_equal(heard.ended_threads, 1);
        assert_int_equal(heard.ended_processes, 1);
        assert_int_equal(heard.missed, side == ROSTER_OUTSIDE);
        assert_int_equal(roster_free(roster), STATUS_OK);
    }
}

/* The agent begins anew in the program that the process becomes; from outside it is the same process. */
static void test_exec(void **state) {
    (void)state;
    for (int outside_first = 0; outside_first < 2; outside_first++) {
        struct heard heard;
        struct sample_sink *sides[2];
        struct roster *roster = open_roster(&heard, sides);
        struct sampled_process before = {.pid = 7}, after = {.pid = 7, .version = 3}, outside = {.pid = 7};
        struct sampled_thread threads[2] = {{.process = &before, .native_id = 7}, {.process = &after, .native_id = 7}};
        start(sides[0], &before);
        start_thread(sides[0], &threads[0]);
        if (outside_first)
            start(sides[1], &outside);
        end_thread(sides[0], &threads[0]);
        end(sides[0], &before, 1);
        start(sides[0], &after);
        start_thread(sides[0], &threads[1]);
        start(sides[1], &outside);
        assert_int_equal(roster_process_count(roster), 1);
        assert_int_equal(heard.last_process.version, 3);
        assert_int_equal(heard.threads, 2);
        end_thread(sides[0], &threads[1]);
        end(sides[0], &after, 10);
        end(sides[1], &outside, 100);
        assert_int_equal(roster_free(roster), STATUS_OK);
        assert_int_equal(heard.ended_threads, 2);
        assert_int_equal(heard.ended_processes, 1);
        assert_int_equal(heard.counters.taken, 111);
    }
}

/* What the process had become is found only when all have seen its end. */
static void test_exec_found_late(void **state) {
    (void)state;
    struct heard heard;
    struct sample_sink *sides[2];
    struct roster *roster = open_roster(&heard, sides);
    struct sampled_process before = {.pid = 7}, after = {.pid = 7}, outside = {.pid = 7};
    start(sides[0], &before);
    start(sides[1], &outside);
    end(sides[0], &before, 1);
    end(sides[1], &outside, 100);
    pass(sides[1], clock_monotonic_ns());
    start(sides[0], &after);
    pass(sides[1], clock_monotonic_ns() + NS_PER_S);
    assert_int_equal(heard.ended_processes, 0);
    end(sides[0], &after, 10);
    pass(sides[1], clock_monotonic_ns() + NS_PER_S);
    assert_int_equal(heard.ended_processes, 1);
    assert_int_equal(heard.counters.taken, 111);
    assert_int_equal(roster_process_count(roster), 1);
    assert_int_equal(roster_free(roster), STATUS_OK);
}

static void test_others_are_others(void **state) {
    (void)state;
    struct heard heard;
    struct sample_sink *sides[2];
    struct roster *roster = open_roster(&heard, sides);
    struct sampled_process one = {.pid = 7}, other = {.pid = 8}, again = {.pid = 7};
    start(sides[0], &one);
    start(sides[1], &other);
    assert_int_equal(heard.last_process.number, 1);
    struct sampled_thread threads[3] = {
        {.process = &one, .native_id = 7}, {.process = &other, .native_id = 7}, {.process = &one}};
    for (int i = 0; i < 3; i++)
        start_thread(sides[i == 1], &threads[i]);
    assert_int_equal(heard.threads, 3);
    for (int i = 0; i < 3; i++)
        end_thread(sides[i == 1], &threads[i]);
    end(sides[0], &one, 0);
    end(sides[1], &other, 0);
    assert_int_equal(sides[0]->idle(sides[0], UINT64_MAX), STATUS_OK);
    /* The process id is used again. */
    start(sides[0], &again);
    assert_int_equal(heard.last_process.number, 2);
    end(sides[0], &again, 0);
    assert_int_equal(roster_free(roster), STATUS_OK);
    assert_int_equal(heard.ended_processes, 3);
}

/* Who sees from outside is told whether there is an agent: after a while, for it may only be late. */
static void test_who_has_no_agent(void **state) {
    (void)state;
    struct heard heard;
    struct sample_sink *sides[2];
    struct roster *roster = open_roster(&heard, sides);
    struct sampled_process outside = {.pid = 7}, inside = {.pid = 7};
    start(sides[ROSTER_OUTSIDE], &outside);
    uint64_t now_ns = clock_monotonic_ns();
    pass(sides[0], now_ns);
    assert_int_equal(outside.company, SAMPLE_COMPANY_UNKNOWN);
    pass(sides[0], now_ns + NS_PER_S);
    assert_int_equal(outside.company, SAMPLE_COMPANY_NONE);
    start(sides[ROSTER_INSIDE], &inside);
    assert_int_equal(outside.company, SAMPLE_COMPANY_AGENT);
    pass(sides[0], now_ns + NS_PER_S);
    assert_int_equal(outside.company, SAMPLE_COMPANY_AGENT);
    end(sides[ROSTER_INSIDE], &inside, 0);
    assert_int_equal(outside.company, SAMPLE_COMPANY_UNKNOWN);
    pass(sides[0], clock_monotonic_ns());
    assert_int_equal(outside.company, SAMPLE_COMPANY_UNKNOWN);
    pass(sides[0], clock_monotonic_ns() + NS_PER_S);
    assert_int_equal(outside.company, SAMPLE_COMPANY_NONE);
    end(sides[ROSTER_OUTSIDE], &outside, 0);
    assert_int_equal(roster_free(roster), STATUS_OK);
}

/* What a thread uses when its agent is gone is added to what the agent saw. */
static void test_the_agent_leaves(void **state) {
    (void)state;
    struct heard heard;
    struct sample_sink *sides[2];
    struct roster *roster = open_roster(&heard, sides);
    struct sampled_process outside = {.pid = 7}, inside = {.pid = 7};
    struct sampled_thread seen = {.process = &outside, .native_id = 8, .cpu_ns = 90};
    struct sampled_thread own = {.process = &inside, .native_id = 8, .cpu_ns = 100};
    start(sides[ROSTER_OUTSIDE], &outside);
    start(sides[ROSTER_INSIDE], &inside);
    start_thread(sides[ROSTER_OUTSIDE], &seen);
    start_thread(sides[ROSTER_INSIDE], &own);
    end_thread(sides[ROSTER_INSIDE], &own);
    outside.asked = true;
    end(sides[ROSTER_INSIDE], &inside, 0);
    assert_int_equal(outside.company, SAMPLE_COMPANY_UNKNOWN);
    assert_false(outside.asked);
    for (int alone = 0; alone < 2; alone++) {
        const struct sample sample = {.thread = &seen};
        seen.cpu_ns += 10;
        assert_int_equal(sides[ROSTER_OUTSIDE]->sample(sides[ROSTER_OUTSIDE], &sample), STATUS_OK);
        assert_int_equal(heard.sampled->cpu_ns, alone ? 120 : 100);
        pass(sides[0], clock_monotonic_ns() + NS_PER_S);
    }
    end_thread(sides[ROSTER_OUTSIDE], &seen);
    assert_int_equal(heard.last_thread.cpu_ns, 120);
    end(sides[ROSTER_OUTSIDE], &outside, 0);
    assert_int_equal(roster_free(roster), STATUS_OK);
}

/* From outside a thread may be lost, and found again as one that is new there. */
static void test_a_thread_lost_and_found(void **state) {
    (void)state;
    struct heard heard;
    struct sample_sink *sides[2];
    struct roster *roster = open_roster(&heard, sides);
    struct sampled_process outside = {.pid = 7}, inside = {.pid = 7};
    struct sampled_thread own = {.process = &inside, .native_id = 8, .cpu_ns = 100};
    start(sides[ROSTER_OUTSIDE], &outside);
    start(sides[ROSTER_INSIDE], &inside);
    start_thread(sides[ROSTER_INSIDE], &own);
    for (int i = 0; i < 3; i++) {
        struct sampled_thread seen = {.process = &outside, .native_id = 8, .cpu_ns = 50};
        const struct sample sample = {.thread = &seen};
        start_thread(sides[ROSTER_OUTSIDE], &seen);
        assert_int_equal(sides[ROSTER_OUTSIDE]->sample(sides[ROSTER_OUTSIDE], &sample), STATUS_OK);
        assert_int_equal(heard.sampled->cpu_ns, 100);
        end_thread(sides[ROSTER_OUTSIDE], &seen);
    }
    assert_int_equal(heard.threads, 1);
    end_thread(sides[ROSTER_INSIDE], &own);
    assert_int_equal(heard.ended_threads, 1);
    assert_int_equal(heard.last_thread.cpu_ns, 100);
    end(sides[ROSTER_INSIDE], &inside, 0);
    end(sides[ROSTER_OUTSIDE], &outside, 0);
    assert_int_equal(roster_free(roster), STATUS_OK);
}

/* From outside a thread that is in two interpreters is two, whose CPU time the agent tells of as one's. */
static void test_a_thread_in_two_interpreters(void **state) {
    (void)state;
    struct heard heard;
    struct sample_sink *sides[2];
    struct roster *roster = open_roster(&heard, sides);
    struct sampled_process outside = {.pid = 7}, inside = {.pid = 7};
    struct sampled_thread seen[2] = {{.process = &outside, .native_id = 8, .cpu_ns = 50},
                                     {.process = &outside, .native_id = 8, .interpreter = 1}};
    struct sampled_thread own = {.process = &inside, .native_id = 8, .cpu_ns = 100};
    start(sides[ROSTER_OUTSIDE], &outside);
    start(sides[ROSTER_INSIDE], &inside);
    start_thread(sides[ROSTER_OUTSIDE], &seen[0]);
    start_thread(sides[ROSTER_OUTSIDE], &seen[1]);
    start_thread(sides[ROSTER_INSIDE], &own);
    assert_int_equal(heard.threads, 2);
    const struct sample samples[3] = {{.thread = &own}, {.thread = &seen[0]}, {.thread = &seen[1]}};
    const uint64_t told_ns[3] = {100, 100, 0};
    seen[1].cpu_ns = 30;
    for (int i = 0; i < 3; i++) {
        struct sample_sink *side = sides[i == 0 ? ROSTER_INSIDE : ROSTER_OUTSIDE];
        assert_int_equal(side->sample(side, &samples[i]), STATUS_OK);
        assert_int_equal(heard.sampled->cpu_ns, told_ns[i]);
    }
    end_thread(sides[ROSTER_OUTSIDE], &seen[1]);
    end_thread(sides[ROSTER_OUTSIDE], &seen[0]);
    end_thread(sides[ROSTER_INSIDE], &own);
    assert_int_equal(heard.last_thread.cpu_ns, 100);
    end(sides[ROSTER_INSIDE], &inside, 0);
    end(sides[ROSTER_OUTSIDE], &outside, 0);
    assert_int_equal(roster_free(roster), STATUS_OK);
}

/* The agent is the first to tell that it has ended, and told of all that the two used. */
static void test_a_thread_in_two_interpreters_ends(void **state) {
    (void)state;
    struct heard heard;
    struct sample_sink *sides[2];
    struct roster *roster = open_roster(&heard, sides);
    struct sampled_process outside = {.pid = 7}, inside = {.pid = 7};
    struct sampled_thread seen[2] = {{.process = &outside, .native_id = 8},
                                     {.process = &outside, .native_id = 8, .interpreter = 1}};
    struct sampled_thread own = {.process = &inside, .native_id = 8, .cpu_ns = 100};
    start(sides[ROSTER_OUTSIDE], &outside);
    start(sides[ROSTER_INSIDE], &inside);
    start_thread(sides[ROSTER_OUTSIDE], &seen[0]);
    start_thread(sides[ROSTER_OUTSIDE], &seen[1]);
    start_thread(sides[ROSTER_INSIDE], &own);
    end_thread(sides[ROSTER_INSIDE], &own);
    end(sides[ROSTER_INSIDE], &inside, 0);
    seen[1].cpu_ns = 90;
    end_thread(sides[ROSTER_OUTSIDE], &seen[0]);
    assert_int_equal(heard.last_thread.cpu_ns, 100);
    end_thread(sides[ROSTER_OUTSIDE], &seen[1]);
    end(sides[ROSTER_OUTSIDE], &outside, 0);
    assert_int_equal(roster_free(roster), STATUS_OK);
    assert_int_equal(heard.ended_threads, 2);
    assert_int_equal(heard.last_thread.cpu_ns, 0);
}

/* A fork that is seen from outside first, and then becomes another program. */
static void test_where_a_fork_began(void **state) {
    (void)state;
    char *forked[] = {"python3", "x.py", NULL}, *execed[] = {"python3", "y.py", NULL};
    struct heard heard;
    struct sample_sink *sides[2];
    struct roster *roster = open_roster(&heard, sides);
    struct sampled_process parent = {.pid = 7, .command = forked}, agent = {.pid = 7, .began_in = "/there"};
    struct error error = {0};
    struct process *process = NULL;
    assert_int_equal(process_open(getpid(), &process, &error), STATUS_OK);
    struct sampled_process child = {.process = process, .pid = 8, .parent_pid = 7, .command = forked};
    struct sampled_process own = {.pid = 8, .began_in = "/elsewhere"};
    start(sides[1], &parent);
    assert_null(heard.last_process.began_in);
    start(sides[0], &agent);
    assert_string_equal(heard.last_process.began_in, "/there");
    start(sides[1], &child);
    assert_string_equal(heard.last_process.began_in, "/there");
    child.command = execed;
    start(sides[1], &child);
    assert_null(heard.last_process.began_in);
    start(sides[0], &own);
    assert_string_equal(heard.last_process.began_in, "/elsewhere");
    end(sides[0], &own, 1);
    end(sides[1], &child, 1);
    end(sides[0], &agent, 1);
    end(sides[1], &parent, 1);
    assert_int_equal(roster_free(roster), STATUS_OK);
    process_free(process);
}

/* Ids are used again: of a process that lives on, the end of one before it says nothing. */
static void test_whose_end_it_was(void **state) {
    (void)state;
    for (int later = 0; later < 2; later++) {
        struct heard heard;
        struct sample_sink *sides[2];
        struct roster *roster = open_roster(&heard, sides);
        struct sampled_process process = {.pid = 7, .start_ns = clock_monotonic_ns() + (later != 0 ? NS_PER_S : 0)};
        assert_int_equal(sides[0]->process_exited(sides[0], 7, 3 << 8), STATUS_OK);
        start(sides[ROSTER_OUTSIDE], &process);
        assert_int_equal(roster_free(roster), STATUS_OK);
        assert_int_equal(heard.ended_processes, 1);
        assert_int_equal(heard.last_process.has_status, later == 0);
        assert_int_equal(heard.last_process.wait_status, later == 0 ? 3 << 8 : 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counters_are_told_before_the_end),
        cmocka_unit_test(test_two_sides_are_one),
        cmocka_unit_test(test_one_side_alone),
        cmocka_unit_test(test_exec),
        cmocka_unit_test(test_exec_found_late),
        cmocka_unit_test(test_others_are_others),
        cmocka_unit_test(test_who_has_no_agent),
        cmocka_unit_test(test_the_agent_leaves),
        cmocka_unit_test(test_a_thread_lost_and_found),
        cmocka_unit_test(test_a_thread_in_two_interpreters),
        cmocka_unit_test(test_a_thread_in_two_interpreters_ends),
        cmocka_unit_test(test_where_a_fork_began),
        cmocka_unit_test(test_whose_end_it_was),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
