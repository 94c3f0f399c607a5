#include "child.h"
#include "process/process.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static void refuse(pid_t pid, enum status status, const char *words) {
    struct error error = {0};
    struct process *process = (struct process *)&error;
    assert_int_equal(process_open(pid, &process, &error), status);
    assert_null(process);
    assert_int_equal(error.status, status);
    if (strstr(error.text, words) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", error.text, words);
    assert_null(strchr(error.text, '\n'));
}

static char known_bytes[100000];

static void fill_known_bytes(char seed) {
    for (size_t i = 0; i < sizeof known_bytes; i++)
        known_bytes[i] = (char)(i * 7 + i / 256 + (size_t)seed);
}

static void change_and_idle(void *unused) {
    fill_known_bytes('c');
    child_idle(unused);
}

static remote_addr remote(const void *address) {
    return (remote_addr)(uintptr_t)address;
}

static void test_reads_the_bytes_of_the_other_process(void **state) {
    (void)state;
    pid_t pid = child_start(change_and_idle, NULL);
    struct process *process = child_open(pid);
    struct memory *memory = process_memory(process);
    static char read_back[sizeof known_bytes], expected[sizeof known_bytes];
    memset(known_bytes, 0, sizeof known_bytes);
    assert_int_equal(memory_read(memory, remote(known_bytes), read_back, sizeof read_back), STATUS_OK);
    fill_known_bytes('c');
    memcpy(expected, known_bytes, sizeof expected);
    assert_memory_equal(read_back, expected, sizeof expected);
    /* Every size around the limits of both ways of reading. */
    for (size_t size = 0; size < 20000; size += size < 20 ? 1 : 4093) {
        memset(read_back, 0, sizeof read_back);
        assert_int_equal(memory_read(memory, remote(known_bytes) + 3, read_back, size), STATUS_OK);
        assert_memory_equal(read_back, expected + 3, size);
        assert_int_equal(read_back[size], 0);
    }
    process_free(process);
    child_end(pid);
}

static void test_reads_many_pieces(void **state) {
    (void)state;
    enum { PIECES = 3000 };
    pid_t pid = child_start(change_and_idle, NULL);
    struct process *process = child_open(pid);
    struct memory *memory = process_memory(process);
    fill_known_bytes('c');
    static struct memory_piece pieces[PIECES];
    static char read_back[PIECES][40];
    for (size_t i = 0; i < PIECES; i++)
        pieces[i] = (struct memory_piece){remote(known_bytes + i * 31), read_back[i], i % 40};
    assert_int_equal(memory_read_pieces(memory, pieces, PIECES), STATUS_OK);
    for (size_t i = 0; i < PIECES; i++)
        assert_memory_equal(read_back[i], known_bytes + i * 31, i % 40);
    assert_int_equal(memory_read_pieces(memory, pieces, 0), STATUS_OK);
    /* One bad address anywhere spoils the whole. */
    for (size_t i = 0; i < PIECES; i += 997) {
        remote_addr good = pieces[i + 1].address;
        pieces[i + 1].address = 8;
        pieces[i + 1].size_bytes = 8;
        assert_int_equal(memory_read_pieces(memory, pieces, PIECES), STATUS_UNREADABLE);
        pieces[i + 1].address = good;
    }
    process_free(process);
    child_end(pid);
}

static void test_unmapped_memory_is_unreadable(void **state) {
    (void)state;
    char *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(pages != MAP_FAILED);
    memset(pages, 'p', 8192);
    memcpy(pages + 4090, "edge", 5);
    assert_int_equal(munmap(pages + 4096, 4096), 0);
    pid_t pid = child_start(child_idle, NULL);
    struct process *process = child_open(pid);
    struct memory *memory = process_memory(process);
    static char buffer[40000];
    const remote_addr bad[] = {
        0, 1, 4096, remote(pages) + 4096, remote(pages) + 4092, (uint64_t)1 << 47, (uint64_t)1 << 63, UINT64_MAX - 100};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct memory_piece pieces[] = {{remote(pages), buffer, 8}, {bad[i], buffer + 8, 100}};
        assert_int_equal(memory_read(memory, bad[i], buffer, 100), STATUS_UNREADABLE);
        assert_int_equal(memory_read(memory, bad[i], buffer, sizeof buffer), STATUS_UNREADABLE);
        assert_int_equal(memory_read_pieces(memory, pieces, 2), STATUS_UNREADABLE);
    }
    assert_int_equal(memory_read_cstring(memory, remote(pages) + 4090, buffer, 64), STATUS_OK);
    assert_string_equal(buffer, "edge");
    process_free(process);
    child_end(pid);
    (void)munmap(pages, 4096);
}

static void test_an_ended_process_is_noticed(void **state) {
    (void)state;
    pid_t pid = child_start(change_and_idle, NULL);
    struct process *process = child_open(pid);
    struct memory *memory = process_memory(process);
    static char buffer[40000];
    assert_true(process_alive(process));
    (void)kill(pid, SIGKILL);
    siginfo_t info;
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
    /* First a zombie, then nothing. */
    for (int buried = 0; buried < 2; buried++) {
        struct error error = {0};
        struct mappings mappings;
        struct system_threads threads;
        struct memory_piece pieces[] = {{remote(known_bytes), buffer, 8}, {remote(known_bytes), buffer, 8}};
        assert_false(process_alive(process));
        assert_int_equal(memory_read(memory, remote(known_bytes), buffer, 8), STATUS_NO_PROCESS);
        assert_int_equal(memory_read(memory, remote(known_bytes), buffer, sizeof buffer), STATUS_NO_PROCESS);
        assert_int_equal(memory_read_pieces(memory, pieces, 2), STATUS_NO_PROCESS);
        assert_int_equal(process_read_mappings(process, &mappings, &error), STATUS_NO_PROCESS);
        assert_int_equal(process_read_threads(process, true, &threads, &error), STATUS_NO_PROCESS);
        assert_int_equal(process_pause(process, &error), STATUS_NO_PROCESS);
        refuse(pid, STATUS_NO_PROCESS, buried ? "no process" : "zombie");
        if (!buried)
            assert_int_equal(waitpid(pid, NULL, 0), pid);
    }
    process_free(process);
}

static int exec_pipe[2];

static void wait_and_exec(void *unused) {
    (void)unused;
    char byte;
    child_ready();
    if (read(exec_pipe[0], &byte, 1) == 1)
        (void)execlp("sleep", "sleep", "1000", (char *)NULL);
}

/* The same process, another program: what is read is the new one's. */
static void test_reads_go_on_after_exec(void **state) {
    (void)state;
    assert_int_equal(pipe(exec_pipe), 0);
    pid_t pid = child_start(wait_and_exec, NULL);
    struct process *process = child_open(pid);
    struct error error = {0};
    struct mappings mappings = {0};
    assert_int_equal(write(exec_pipe[1], "", 1), 1);
    do {
        mappings_release(&mappings);
        assert_int_equal(process_read_mappings(process, &mappings, &error), STATUS_OK);
    } while (strcmp(basename(mappings.items[0].path), "sleep") != 0);
    char magic[4], same[4];
    struct memory_piece pieces[] = {{mappings.items[0].start, same, 4}};
    assert_int_equal(memory_read(process_memory(process), mappings.items[0].start, magic, 4), STATUS_OK);
    assert_memory_equal(magic, "\177ELF", 4);
    assert_int_equal(memory_read_pieces(process_memory(process), pieces, 1), STATUS_OK);
    assert_memory_equal(same, magic, 4);
    mappings_release(&mappings);
    process_free(process);
    (void)close(exec_pipe[0]);
    (void)close(exec_pipe[1]);
    child_end(pid);
}

static void test_refuses_what_is_no_process(void **state) {
    (void)state;
    refuse(0, STATUS_NO_PROCESS, "no process");
    refuse(-1, STATUS_NO_PROCESS, "no process -1");
    refuse(INT32_MAX, STATUS_NO_PROCESS, "no process 2147483647");
}

static void test_refuses_a_kernel_thread(void **state) {
    (void)state;
    /* kthreadd, except where this runs in a PID namespace of its own. */
    char text[64] = "";
    FILE *file = fopen("/proc/2/comm", "r");
    if (file == NULL || fgets(text, sizeof text, file) == NULL || strcmp(text, "kthreadd\n") != 0) {
        if (file != NULL)
            (void)fclose(file);
        skip();
    }
    (void)fclose(file);
    refuse(2, STATUS_NOT_PYTHON, "kernel thread (kthreadd)");
}

static void test_command_line(void **state) {
    (void)state;
    const char *const command[] = {"sh", "-c", "echo; read x; :", "", "two words", NULL};
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    int input = dup(STDIN_FILENO);
    (void)dup2(ends[0], STDIN_FILENO);
    pid_t pid = child_run_until_output(command);
    (void)dup2(input, STDIN_FILENO);
    struct process *process = child_open(pid);
    char **arguments = process_command(process);
    for (size_t i = 0; command[i] != NULL; i++)
        assert_string_equal(arguments[i], command[i]);
    assert_null(arguments[5]);
    assert_ptr_equal(process_command(process), arguments);
    process_free(process);
    (void)close(input);
    (void)close(ends[0]);
    (void)close(ends[1]);
    child_end(pid);
}

static int thread_id_pipe[2];

static void *report_and_wait(void *unused) {
    (void)unused;
    pid_t tid = gettid();
    if (write(thread_id_pipe[1], &tid, sizeof tid) != sizeof tid)
        _exit(98);
    for (;;)
        (void)pause();
    return NULL;
}

static void start_thread(void *ends_leader) {
    pthread_t thread;
    fill_known_bytes('c');
    if (pthread_create(&thread, NULL, report_and_wait, NULL) != 0)
        _exit(98);
    child_ready();
    if (ends_leader != NULL)
        (void)syscall(SYS_exit, 0);
    (void)pthread_join(thread, NULL);
}

static pid_t start_with_thread(bool ends_leader, pid_t *tid) {
    assert_int_equal(pipe(thread_id_pipe), 0);
    pid_t pid = child_start(start_thread, ends_leader ? tid : NULL);
    assert_int_equal(read(thread_id_pipe[0], tid, sizeof *tid), sizeof *tid);
    (void)close(thread_id_pipe[0]);
    (void)close(thread_id_pipe[1]);
    return pid;
}

static void test_a_thread_id_opens_its_process(void **state) {
    (void)state;
    pid_t tid = 0;
    pid_t pid = start_with_thread(false, &tid);
    assert_int_not_equal(tid, pid);
    struct process *process = child_open(tid);
    assert_int_equal(process_pid(process), pid);
    assert_int_equal(process_own_pid(process), pid);
    process_free(process);
    child_end(pid);
}

/* The first thread may end before the others: the process shows as a zombie and lives. */
static void test_a_process_without_its_first_thread(void **state) {
    (void)state;
    pid_t tid = 0;
    pid_t pid = start_with_thread(true, &tid);
    child_await_state(pid, pid, "Z");
    struct process *process = child_open(pid);
    assert_int_equal(process_pid(process), pid);
    assert_true(process_alive(process));
    uint8_t byte = 0;
    fill_known_bytes('c');
    assert_int_equal(memory_read_u8(process_memory(process), remote(known_bytes + 5), &byte), STATUS_OK);
    assert_int_equal(byte, (uint8_t)known_bytes[5]);
    struct system_threads threads;
    struct error error = {0};
    assert_int_equal(process_read_threads(process, false, &threads, &error), STATUS_OK);
    assert_int_equal(threads.count, 1);
    assert_int_equal(threads.items[0].tid, tid);
    system_threads_release(&threads);
    assert_int_equal(process_pause(process, &error), STATUS_OK);
    process_resume(process);
    process_free(process);
    child_end(pid);
}

static void look_as_nobody(void *argument) {
    struct error error = {0};
    struct process *process = NULL;
    child_ready();
    if (setgid(65534) != 0 || setuid(65534) != 0)
        _exit(90);
    enum status status = process_open(*(pid_t *)argument, &process, &error);
    if (status != STATUS_PERMISSION)
        _exit(91);
    (void)fprintf(stderr, "%s\n", error.text);
    _exit(strstr(error.text, "permission denied (") != NULL && strstr(error.text, "run as root") != NULL ? 0 : 92);
}

static void test_permission_denied_names_the_way_out(void **state) {
    (void)state;
    if (geteuid() != 0)
        skip();
    pid_t pid = child_start(child_idle, NULL);
    pid_t looker = child_start(look_as_nobody, &pid);
    int status = 0;
    assert_int_equal(waitpid(looker, &status, 0), looker);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    child_end(pid);
}

static void idle_undumpable(void *unused) {
    if (setgid(65534) != 0 || setuid(65534) != 0 || prctl(PR_SET_DUMPABLE, 0) != 0)
        _exit(98);
    child_idle(unused);
}

static void test_undumpable_process_of_the_same_user(void **state) {
    (void)state;
    if (geteuid() != 0)
        skip();
    pid_t pid = child_start(idle_undumpable, NULL);
    pid_t looker = child_start(look_as_nobody, &pid);
    int status = 0;
    assert_int_equal(waitpid(looker, &status, 0), looker);
    assert_int_equal(WEXITSTATUS(status), 0);
    child_end(pid);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads_the_bytes_of_the_other_process),
        cmocka_unit_test(test_reads_many_pieces),
        cmocka_unit_test(test_unmapped_memory_is_unreadable),
        cmocka_unit_test(test_an_ended_process_is_noticed),
        cmocka_unit_test(test_reads_go_on_after_exec),
        cmocka_unit_test(test_refuses_what_is_no_process),
        cmocka_unit_test(test_refuses_a_kernel_thread),
        cmocka_unit_test(test_command_line),
        cmocka_unit_test(test_a_thread_id_opens_its_process),
        cmocka_unit_test(test_a_process_without_its_first_thread),
        cmocka_unit_test(test_permission_denied_names_the_way_out),
        cmocka_unit_test(test_undumpable_process_of_the_same_user),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
