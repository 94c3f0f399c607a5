#include "fed_session.h"

#include "base/clock.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* A session, and a producer that it is going to find. */
static struct agent_session *open_with(struct seen *seen, struct producer *producer) {
    struct agent_session *session = fed_session_open(seen);
    producer_make(producer, session, 0);
    producer_publish(producer);
    return session;
}

static void test_stacks_and_weights(void **state) {
    (void)state;
    static struct seen seen;
    struct producer producer;
    struct agent_session *session = fed_session_open(&seen);
    producer_make(&producer, session, 0);
    fed_session_drain(session);
    assert_int_equal(seen.processes, 0);
    producer_publish(&producer);
    producer_start_thread(&producer, 0, 5000);
    producer_put_code(&producer, 0, 0x1000, "main", 10);
    producer_put_code(&producer, 0, 0x2000, "leaf", 20);
    producer_put_sample(&producer, 0, 6000, 0,
                        (const struct wire_frame[]){{0x2000, 4, WIRE_FRAME_PYTHON}, {0x1000, 0, WIRE_FRAME_PYTHON}}, 2,
                        0);
    fed_session_drain(session);
    assert_int_equal(seen.processes, 1);
    assert_int_equal(seen.pid, getpid());
    /* The outer frame is kept; then its look failed; then leaf calls itself from C. */
    producer_put_sample(&producer, 0, 6500, 1, (const struct wire_frame[]){{0x2000, 8, WIRE_FRAME_PYTHON}}, 1, 0);
    producer_put_sample(&producer, 0, 7000, 0, NULL, 0, WIRE_SAMPLE_TORN);
    producer_put_sample(&producer, 0, 9000, 2,
                        (const struct wire_frame[]){{0x2000, 0, WIRE_FRAME_PYTHON}, {0, -1, WIRE_FRAME_NATIVE}}, 2, 0);
    producer_put_sample(&producer, 0, 9001, 4, NULL, 0, 0);
    producer_end_thread(&producer, 0, 9400);
    fed_session_drain(session);
    assert_int_equal(seen.sample_count, 5);
    assert_string_equal(seen.stacks[0], "main:10;leaf:21");
    assert_string_equal(seen.stacks[1], "main:10;leaf:22");
    assert_string_equal(seen.stacks[2], "main:10;leaf:22;leaf:20");
    assert_string_equal(seen.stacks[3], "main:10;leaf:22;leaf:20");
    assert_string_equal(seen.stacks[4], "main:10;leaf:22;leaf:20");
    const uint64_t weights[] = {1000, 500, 2500, 1, 399};
    assert_memory_equal(seen.weights, weights, sizeof weights);
    assert_int_equal(seen.ended_threads, 1);
    assert_int_equal(seen.thread_cpu_ns, 4400);
    assert_int_equal(atomic_load(&producer.rings[0].slot->state), WIRE_SLOT_FREE);
    fed_session_finish(session);
    assert_int_equal(seen.ended_processes, 1);
    producer_end(&producer);
}

/* An address comes to mean another code object, and the same code object is told of by two rings. */
static void test_code_is_told_apart(void **state) {
    (void)state;
    static struct seen seen;
    struct producer producer;
    struct agent_session *session = open_with(&seen, &producer);
    const struct wire_frame frame[] = {{0x1000, 0, WIRE_FRAME_PYTHON}};
    producer_start_thread(&producer, 0, 0);
    producer_start_thread(&producer, 3, 0);
    producer_put_code(&producer, 0, 0x1000, "first", 1);
    producer_put_sample(&producer, 0, 1, 0, frame, 1, 0);
    producer_put_code(&producer, 3, 0x1000, "first", 1);
    producer_put_sample(&producer, 3, 1, 0, frame, 1, 0);
    fed_session_drain(session);
    producer_put_code(&producer, 0, 0x1000, "second", 1);
    producer_put_sample(&producer, 0, 2, 0, frame, 1, 0);
    producer_put_sample(&producer, 3, 2, 0, frame, 1, 0);
    producer_put_sample(&producer, 0, 3, 0, (const struct wire_frame[]){{0x9000, 0, WIRE_FRAME_PYTHON}}, 1, 0);
    fed_session_drain(session);
    assert_int_equal(seen.sample_count, 5);
    assert_string_equal(seen.stacks[0], "first:1");
    assert_string_equal(seen.stacks[1], "first:1");
    assert_int_equal(seen.serials[0], seen.serials[1]);
    assert_string_equal(seen.stacks[2], "second:1");
    assert_int_not_equal(seen.serials[2], seen.serials[0]);
    assert_string_equal(seen.stacks[3], "?:-1");
    assert_string_equal(seen.stacks[4], "first:1");
    fed_session_finish(session);
    producer_end(&producer);
}

static void test_what_is_lost_is_a_gap(void **state) {
    (void)state;
    static struct seen seen;
    struct producer producer;
    struct agent_session *session = open_with(&seen, &producer);
    producer_start_thread(&producer, 0, 0);
    producer_put_code(&producer, 0, 0x1000, "leaf", 1);
    producer_put_sample(&producer, 0, 10, 2, (const struct wire_frame[]){{0x1000, 0, WIRE_FRAME_PYTHON}}, 1, 0);
    atomic_store(&producer.rings[0].slot->lost_records, 7);
    atomic_store(&producer.rings[0].slot->torn, 3);
    fed_session_drain(session);
    assert_string_equal(seen.stacks[0], "CUT:-1;leaf:1");
    fed_session_finish(session);
    assert_int_equal(seen.counters.taken, 1);
    assert_int_equal(seen.counters.missed, 7);
    assert_int_equal(seen.counters.inconsistent, 3);
    assert_int_equal(seen.counters.errors, 1);
    producer_end(&producer);
}

/* Threads too short for their clock to strike leave their time to the first stroke of another one; what is left over at
 * the end has no stack. */
static void test_short_threads(void **state) {
    (void)state;
    static struct seen seen;
    struct producer producer;
    struct agent_session *session = open_with(&seen, &producer);
    for (uint32_t i = 0; i < 3; i++)
        producer_start_thread(&producer, i, 100);
    fed_session_drain(session);
    producer_end_thread(&producer, 0, 800);
    fed_session_drain(session);
    assert_int_equal(seen.sample_count, 0);
    producer_put_code(&producer, 1, 0x1000, "work", 1);
    producer_put_sample(&producer, 1, 1100, 0, (const struct wire_frame[]){{0x1000, 0, WIRE_FRAME_PYTHON}}, 1, 0);
    producer_put_sample(&producer, 1, 1200, 1, NULL, 0, 0);
    fed_session_drain(session);
    producer_end_thread(&producer, 2, 130);
    fed_session_drain(session);
    producer_end_thread(&producer, 1, 1200);
    fed_session_drain(session);
    assert_int_equal(seen.sample_count, 3);
    const uint64_t weights[] = {1700, 100, 30};
    assert_memory_equal(seen.weights, weights, sizeof weights);
    assert_string_equal(seen.stacks[0], "work:1");
    assert_string_equal(seen.stacks[2], "");
    assert_int_equal(seen.thread_cpu_ns, 700 + 1100 + 30);
    fed_session_finish(session);
    producer_end(&producer);
}

/* On a busy machine looks may be far between. Of what a thread's first look stands for only a part is its own. */
static void test_far_between(void **state) {
    (void)state;
    static struct seen seen;
    struct producer producer;
    struct agent_session *session = open_with(&seen, &producer);
    producer_start_thread(&producer, 0, 0);
    producer_put_code(&producer, 0, 0x1000, "work", 1);
    const uint64_t clock_ms[] = {300, 304, 404, 414};
    for (size_t i = 0; i < sizeof clock_ms / sizeof clock_ms[0]; i++)
        producer_put_sample(&producer, 0, clock_ms[i] * NS_PER_MS, 0,
                            (const struct wire_frame[]){{0x1000, 0, WIRE_FRAME_PYTHON}}, 1, 0);
    assert_int_equal(agent_session_finish(session), STATUS_OK);
    assert_int_equal(agent_session_looks(session).cpu_ns, 414 * NS_PER_MS);
    assert_int_equal(agent_session_looks(session).longest_ns, 100 * NS_PER_MS);
    agent_session_close(session);
    producer_end(&producer);
}

static void test_a_program_that_execs_is_another(void **state) {
    (void)state;
    static struct seen seen;
    struct producer first, second;
    struct agent_session *session = open_with(&seen, &first);
    producer_start_thread(&first, 0, 0);
    fed_session_drain(session);
    producer_put_code(&first, 0, 0x1000, "last_words", 1);
    producer_put_sample(&first, 0, 10, 0, (const struct wire_frame[]){{0x1000, 0, WIRE_FRAME_PYTHON}}, 1, 0);
    producer_make(&second, session, 1);
    producer_publish(&second);
    /* Both at once: who comes later could find that the process has ended, and take the second for another one. */
    assert_int_equal(agent_session_attend(session, clock_monotonic_ns()), STATUS_OK);
    assert_string_equal(seen.stacks[0], "last_words:1");
    assert_int_equal(seen.processes, 2);
    assert_int_equal(seen.ended_processes, 1);
    assert_int_equal(access(first.path, F_OK), -1);
    fed_session_finish(session);
    assert_int_equal(seen.ended_processes, 2);
    assert_int_equal(atomic_load(&((struct wire_region *)second.region)->control), WIRE_CONTROL_PAUSE);
    producer_end(&first);
    producer_end(&second);
}

static void test_an_agent_that_is_off_says_why(void **state) {
    (void)state;
    static struct seen seen;
    struct agent_session *session = fed_session_open(&seen);
    struct producer whole;
    char path[600];
    struct wire_region header = {.magic = WIRE_MAGIC, .version = WIRE_VERSION, .pid = 77, .state = WIRE_OFF};
    (void)snprintf(header.reason, sizeof header.reason, "there is no room");
    snprintf(path, sizeof path, "%s/77-0.region", agent_session_folder(session));
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    assert_int_equal(write(fd, &header, sizeof header), sizeof header);
    close(fd);
    producer_make(&whole, session, 0);
    (void)snprintf(((struct wire_region *)whole.region)->reason, WIRE_REASON_BYTES, "it is tired");
    producer_publish(&whole);
    atomic_store(&((struct wire_region *)whole.region)->state, WIRE_OFF);
    fed_session_drain(session);
    const char *complaint = agent_session_next_complaint(session);
    assert_non_null(strstr(complaint, "process 77: there is no room"));
    assert_non_null(strstr(agent_session_next_complaint(session), "it is tired"));
    assert_null(agent_session_next_complaint(session));
    fed_session_finish(session);
    producer_end(&whole);
}

/* xorshift64 */
/* So that there are `count` more to be had. */
static void leave_files(int count) {
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    close(fd);
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = (rlim_t)fd + (rlim_t)count;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

/* One region can be opened, and nothing of its process; the other cannot. */
static void test_too_few_files(void **state) {
    (void)state;
    static struct seen seen;
    struct rlimit before;
    struct agent_session *session = fed_session_open(&seen);
    struct producer producer;
    char path[600];
    snprintf(path, sizeof path, "%s/%d-0.region", agent_session_folder(session), INT32_MAX);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(ftruncate(fd, (off_t)WIRE_REGION_BYTES), 0);
    producer_make(&producer, session, 0);
    producer_start_thread(&producer, 0, 0);
    producer_publish(&producer);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    leave_files(1);
    fed_session_drain(session);
    assert_int_equal(agent_session_drain(session, clock_monotonic_ns() + NS_PER_S), STATUS_OK);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(seen.processes, 1);
    assert_int_equal(seen.ended_processes, 0);
    assert_non_null(strstr(agent_session_next_complaint(session), "process 2147483647: too many open files"));
    assert_null(agent_session_next_complaint(session));
    fed_session_finish(session);
    producer_end(&producer);
    close(fd);
}

static uint64_t next_random(uint64_t *random) {
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    return *random;
}

/* Falsifies what a well-meant producer wrote, byte by byte; strobe must neither die nor wait. */
static void test_hostile_regions(void **state) {
    (void)state;
    static struct seen seen;
    uint64_t random = 88172645463325252u;
    struct agent_session *session = fed_session_open(&seen);
    for (int round = 0; round < 300; round++) {
        struct producer producer;
        producer_make(&producer, session, round);
        ((struct wire_region *)producer.region)->memory_stride_bytes = (uint64_t)round % 2;
        producer_publish(&producer);
        producer_start_thread(&producer, 1, 0);
        for (uint32_t i = 0; i < 20; i++) {
            producer_put_code(&producer, 1, 0x1000 * (i + 1), "name", 1);
            producer_put_sample(&producer, 1, i, i,
                                (const struct wire_frame[]){{0x1000 * (i + 1), 0, WIRE_FRAME_PYTHON}}, 1, 0);
            producer_put_alloc(&producer, 1, &(struct wire_alloc){.id = i / 2, .weight_bytes = 7, .kept = i}, NULL, 0);
            producer_put_free(&producer, 1, i / 3, 9);
        }
        uint64_t written = wire_ring_position(&producer.rings[1]);
        for (int i = 0; i < 8; i++)
            producer.rings[1].bytes[next_random(&random) % written] ^= (uint8_t)(1u << next_random(&random) % 8);
        if (round % 4 == 1)
            atomic_store(&producer.rings[1].slot->written, next_random(&random));
        if (round % 4 == 2)
            ((uint8_t *)producer.region)[8 + next_random(&random) % (WIRE_SLOTS_OFFSET - 8)] ^= 0xff;
        if (round % 4 == 3)
            for (int i = 0; i < 64; i++)
                ((uint8_t *)
                     producer.region)[WIRE_SLOTS_OFFSET + next_random(&random) % (WIRE_SLOTS * WIRE_SLOT_BYTES)] =
                    (uint8_t)next_random(&random);
        fed_session_drain(session);
        producer_end(&producer);
    }
    fed_session_finish(session);
    assert_int_equal(seen.processes, seen.ended_processes);
    assert_int_equal(seen.threads, seen.ended_threads);
}

static void test_files_that_are_no_regions(void **state) {
    (void)state;
    static struct seen seen;
    struct agent_session *session = fed_session_open(&seen);
    char path[600];
    static const char *const names[] = {"x",         "1-2.regions",          "-1-0.region",
                                        "1-.region", "99999999999-0.region", "1 -0.region"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        snprintf(path, sizeof path, "%s/%s", agent_session_folder(session), names[i]);
        close(open(path, O_RDWR | O_CREAT, 0600));
    }
    snprintf(path, sizeof path, "%s/5-0.region", agent_session_folder(session));
    assert_int_equal(mkfifo(path, 0600), 0);
    snprintf(path, sizeof path, "%s/6-0.region", agent_session_folder(session));
    assert_int_equal(symlink("/dev/zero", path), 0);
    snprintf(path, sizeof path, "%s/7-0.region", agent_session_folder(session));
    close(open(path, O_RDWR | O_CREAT, 0600));
    assert_int_equal(truncate(path, 100), 0);
    fed_session_drain(session);
    fed_session_finish(session);
    assert_int_equal(seen.processes, 0);
}

/* The file is cut short under strobe's hands: reading on would be SIGBUS. */
static void test_a_region_that_is_cut_short(void **state) {
    (void)state;
    static struct seen seen;
    struct producer producer;
    struct agent_session *session = open_with(&seen, &producer);
    producer_start_thread(&producer, 0, 0);
    producer_put_code(&producer, 0, 0x1000, "name", 1);
    producer_put_sample(&producer, 0, 10, 0, (const struct wire_frame[]){{0x1000, 0, WIRE_FRAME_PYTHON}}, 1, 0);
    fed_session_drain(session);
    assert_int_equal(seen.sample_count, 1);
    assert_int_equal(ftruncate(producer.fd, 0), 0);
    fed_session_drain(session);
    fed_session_finish(session);
    assert_int_equal(seen.ended_processes, 1);
    producer_end(&producer);
}

static void test_the_folder(void **state) {
    (void)state;
    static struct seen seen;
    struct stat info;
    struct agent_session *session = fed_session_open(&seen);
    char *path = strdup(agent_session_folder(session));
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 07777, 0700);
    agent_session_close(session);
    assert_int_equal(stat(path, &info), -1);
    free(path);
    /* One that dies leaves its folder behind, with what is in it; the next one removes it, and leaves the living alone.
     */
    int pipes[2];
    char left[256] = "";
    assert_int_equal(pipe(pipes), 0);
    pid_t child = fork();
    if (child == 0) {
        session = fed_session_open(&seen);
        struct producer producer;
        producer_make(&producer, session, 0);
        (void)!write(pipes[1], agent_session_folder(session), strlen(agent_session_folder(session)));
        _exit(0);
    }
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_true(read(pipes[0], left, sizeof left - 1) > 0);
    assert_int_equal(stat(left, &info), 0);
    session = fed_session_open(&seen);
    assert_int_equal(stat(left, &info), -1);
    struct agent_session *other = fed_session_open(&seen);
    assert_int_equal(stat(agent_session_folder(session), &info), 0);
    agent_session_close(session);
    agent_session_close(other);
    close(pipes[0]);
    close(pipes[1]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stacks_and_weights),
        cmocka_unit_test(test_code_is_told_apart),
        cmocka_unit_test(test_what_is_lost_is_a_gap),
        cmocka_unit_test(test_short_threads),
        cmocka_unit_test(test_far_between),
        cmocka_unit_test(test_a_program_that_execs_is_another),
        cmocka_unit_test(test_an_agent_that_is_off_says_why),
        cmocka_unit_test(test_too_few_files),
        cmocka_unit_test(test_hostile_regions),
        cmocka_unit_test(test_files_that_are_no_regions),
        cmocka_unit_test(test_a_region_that_is_cut_short),
        cmocka_unit_test(test_the_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
