#include "cli/cli.h"
#include "cli/preload.h"
#include "cli/program.h"
#include "cli/sampling.h"

#include "base/clock.h"
#include "process/machine.h"
#include "process/spawn.h"

#include <getopt.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* As shells say it. */
enum { EXIT_CANNOT_EXECUTE = 126, EXIT_NOT_FOUND = 127 };

static const char help[] = "Usage: strobe run [OPTIONS] SCRIPT.py [ARGS]\n"
                           "       strobe run [OPTIONS] -m MODULE [ARGS]\n"
                           "       strobe run [OPTIONS] -c CODE [ARGS]\n"
                           "       strobe run [OPTIONS] -- COMMAND [ARGS]\n"
                           "\n"
                           "Runs a program with an agent in it and in the processes that it starts, then reports\n"
                           "to standard error. The program's streams, signals and exit status are its own.\n"
                           "Scripts, modules and code are run by the python3 that is first on PATH.\n"
                           "\n"
                           "  --memory HOW       exact: count every allocation; sampled (default); off\n"
                           "  --cpu-only         as --memory off\n"
                           "  --clock CLOCK      cpu (default), or perf: more looks, which cost more\n"
                           "  --on-demand        sample from 'strobe start PID' on, not from the start\n"
                           "  --progress         say what is going on while it runs, on a terminal\n"
                           "  --no-agent         load nothing into the program: sample it from outside\n"
                           "  --no-children      do not sample the processes that it starts\n";

enum { OPTION_NO_AGENT = 256, OPTION_ON_DEMAND, OPTION_PROGRESS, OPTION_CPU_ONLY, OPTION_MEMORY, OPTION_CLOCK };

/* The mean number of bytes between two sampled allocations: what comes from a line is then known to within 139 % over
 * the root of its MiB, in 19 of 20 cases. */
enum { MEMORY_STRIDE_BYTES = 512 << 10 };
/* Each byte. */
enum { EXACT_STRIDE_BYTES = 1 };
/* Of copies, which are many times as much. */
enum { COPY_STRIDE_BYTES = 2 << 20 };

/* Waiting is looked at from outside, at a rate of its own. */
static const double WAIT_RATE_HZ = 100;

struct run_options {
    struct sampling_options sampling;
    bool no_agent;
    bool on_demand;
    bool wants_perf;
    bool wants_memory;            /* said so */
    uint64_t memory_stride_bytes; /* 0: memory is not looked at */
    char **command;               /* an array of our own; the words are argv's */
};

/* A command and what samples it. */
struct run {
    struct run_options *options;
    struct spawn *spawn;
    struct agent_session *agents; /* NULL: it is sampled from outside */
    struct sampler *sampler;      /* while it samples */
    enum status status;           /* of what poll_command could not return */
    bool tried;                   /* to start it */
};

/* `first` and `second` (each NULL: none), then the rest of argv. */
static char **make_command(const char *first, const char *second, const char *third, char **rest, int rest_count) {
    char **command = calloc((size_t)rest_count + 4, sizeof command[0]);
    size_t count = 0;
    if (command == NULL)
        return NULL;
    for (const char *const *word = (const char *const[]){first, second, third, NULL}; *word != NULL; word++)
        command[count++] = (char *)(uintptr_t)*word;
    memcpy(command + count, rest, (size_t)rest_count * sizeof command[0]);
    return command;
}

/* What is wrong with the options together, or NULL. */
static const char *find_conflict(struct run_options *options) {
    const struct target_options *target = &options->sampling.sampler.target;
    if (!options->no_agent && (target->mode != SAMPLING_WALL || target->blocking))
        return "--mode and --blocking are for sampling from outside, with --no-agent";
    if (options->no_agent && options->wants_perf)
        return "--clock perf is the agent's, and --no-agent does without";
    if (options->no_agent && options->on_demand)
        return "--on-demand is the agent's, and --no-agent does without";
    if (options->no_agent && options->wants_memory)
        return "--memory is the agent's, and --no-agent does without";
    return sampling_complete_options(&options->sampling);
}

/* What is to be run: -m or -c with its value when `option` is that, else what stands at optind. */
static int take_command(struct run_options *options, int argc, char **argv, int option, bool is_command) {
    const char *letter = option == 'm' ? "-m" : option == 'c' ? "-c" : NULL;
    const char *conflict = find_conflict(options);
    if (conflict != NULL)
        return cli_usage_error("run", "%s", conflict);
    if (letter == NULL && optind == argc)
        return cli_usage_error("run", "no program given");
    if (letter == NULL && !is_command && program_is_no_script(argv[optind]))
        return cli_usage_error("run", "'%s' is a command, not a script: put -- before it", argv[optind]);
    options->command = make_command(is_command ? NULL : "python3", letter, letter != NULL ? optarg : NULL,
                                    argv + optind, argc - optind);
    if (options->command == NULL)
        return cli_fail(&(struct error){STATUS_FAILED, "there is not enough memory"});
    return -1;
}

/* What is wrong with it, or NULL. */
static const char *take_memory(struct run_options *options, const char *how) {
    static const struct {
        const char *name;
        uint64_t stride_bytes;
    } ways[] = {{"exact", EXACT_STRIDE_BYTES}, {"sampled", MEMORY_STRIDE_BYTES}, {"off", 0}};
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++)
        if (strcmp(how, ways[i].name) == 0) {
            options->memory_stride_bytes = ways[i].stride_bytes;
            options->wants_memory = ways[i].stride_bytes > 0;
            return NULL;
        }
    return "--memory takes exact, sampled or off";
}

static const char *take_clock(struct run_options *options, const char *name) {
    options->wants_perf = strcmp(name, "perf") == 0;
    return options->wants_perf || strcmp(name, "cpu") == 0 ? NULL : "--clock takes cpu or perf";
}

/* -1 to go on, else the exit status. */
static int parse(int argc, char **argv, struct run_options *options) {
    static const struct option known[] = {SAMPLING_LONG_OPTIONS,
                                          {"no-agent", no_argument, NULL, OPTION_NO_AGENT},
                                          {"on-demand", no_argument, NULL, OPTION_ON_DEMAND},
                                          {"cpu-only", no_argument, NULL, OPTION_CPU_ONLY},
                                          {"memory", required_argument, NULL, OPTION_MEMORY},
                                          {"clock", required_argument, NULL, OPTION_CLOCK},
                                          {"progress", no_argument, NULL, OPTION_PROGRESS},
                                          {0}};
    int option, before = 1;
    opterr = 0;
    while ((option = getopt_long(argc, argv, "+m:c:" SAMPLING_SHORT_OPTIONS, known, NULL)) != -1) {
        if (option == 'h') {
            fputs(help, stdout);
            return sampling_finish_help();
        }
        if (option == 'm' || option == 'c')
            break;
        const char *problem = NULL;
        if (option == OPTION_NO_AGENT)
            options->no_agent = true;
        else if (option == OPTION_ON_DEMAND)
            options->on_demand = true;
        else if (option == OPTION_CPU_ONLY)
            (void)take_memory(options, "off");
        else if (option == OPTION_MEMORY)
            problem = take_memory(options, optarg);
        else if (option == OPTION_CLOCK)
            problem = take_clock(options, optarg);
        else if (option == OPTION_PROGRESS)
            options->sampling.progress = true;
        else
            problem = sampling_take_option(&options->sampling, option, optarg);
        if (problem != NULL)
            return cli_usage_error("run", "%s: '%s'", problem, cli_wrong_word(argv));
        before = optind;
    }
    /* What getopt takes without returning an option is the "--". */
    return take_command(options, argc, argv, option, option == -1 && optind > before);
}

static bool poll_command(void *context) {
    struct run *run = context;
    struct spawn_news news;
    spawn_poll(run->spawn, &news);
    if (news.ended)
        run->status = sampler_note_end(run->sampler, spawn_pid(run->spawn), news.wait_status);
    return news.ended;
}

static enum status begin(void *context, struct sampler *sampler, struct error *error) {
    struct run *run = context;
    run->sampler = sampler;
    if (run->agents != NULL && !run->options->sampling.sampler.children)
        agent_session_ignore_others(run->agents, spawn_pid(run->spawn));
    TRY(sampler_expect(sampler, spawn_pid(run->spawn), error));
    run->tried = true;
    return spawn_start(run->spawn, error);
}

/* Until the command has ended, strobe stands between it and whoever sends signals. */
static int await_end(struct spawn *spawn) {
    struct spawn_news news;
    for (spawn_poll(spawn, &news); !news.ended; spawn_poll(spawn, &news)) {
        struct pollfd poll_fd = {.fd = spawn_fd(spawn), .events = POLLIN};
        (void)poll(&poll_fd, 1, -1);
    }
    return spawn_exit_code(news.wait_status);
}

static int fail_to_start(const struct error *error, const char *command) {
    cli_say("%s: %s", command, error->text);
    return error->status == STATUS_NOT_FOUND    ? EXIT_NOT_FOUND
           : error->status == STATUS_PERMISSION ? EXIT_CANNOT_EXECUTE
                                                : EXIT_FAILED;
}

static void say_complaints(struct agent_session *agents) {
    const char *complaint = NULL;
    while (agents != NULL && (complaint = agent_session_next_complaint(agents)) != NULL)
        cli_say("%s", complaint);
}

/* On a busy machine a thread may be off the processor whenever the kernel looks at its clock. The sums are exact all
 * the same. */
static void say_far_between(const struct agent_session *agents) {
    static const uint64_t far_ns = 50 * NS_PER_MS;
    enum { SHARE = 50 };
    const struct sample_looks looks = agent_session_looks(agents);
    if (looks.longest_ns >= far_ns && looks.longest_ns >= looks.cpu_ns / SHARE)
        cli_say("one look stands for %.0f ms of CPU time, %.0f %% of all, as happens while other programs keep the "
                "processors "
                "busy: so much may be another line's; measure for longer, or on a quieter machine",
                (double)looks.longest_ns / (double)NS_PER_MS, 100.0 * (double)looks.longest_ns / (double)looks.cpu_ns);
}

/* What a command did is its own affair; what strobe could not do is said, and does not change the exit status. */
static void report(const struct run *run, const struct sampling *sampling, enum status status,
                   const struct error *error) {
    const char *command = run->options->command[0];
    say_complaints(run->agents);
    if (run->agents != NULL && !sampling->options->quiet)
        say_far_between(run->agents);
    if (status != STATUS_OK)
        (void)cli_fail(error);
    if (sampling->process_count > 0 && status == STATUS_OK) {
        (void)sampling_report(sampling);
        return;
    }
    if (status == STATUS_OK)
        cli_say("nothing was sampled: %s did not become a Python that strobe knows", command);
    if (sampling->process_count == 0)
        sampling_remove_capture(sampling);
}

static int run_command(struct run *run, const char *path) {
    static const volatile sig_atomic_t never;
    struct run_options *options = run->options;
    struct sampler_options *sampler = &options->sampling.sampler;
    struct error error = {0};
    struct sampling sampling = {&options->sampling, path, 0, CAPTURE_ORIGIN_RUN, NULL, begin, run, 0, false};
    sampler->wake = (struct sampler_wake){spawn_fd(run->spawn), poll_command, run};
    options->sampling.report.to_stderr = true;
    if (run->agents != NULL) {
        sampling.rate_hz = sampler->rate_hz;
        sampler->rate_hz = WAIT_RATE_HZ;
        sampler->target.mode = SAMPLING_WAIT;
        sampler->target.paused = options->on_demand;
        sampler->agents = run->agents;
    }
    enum status status = sampling_record(&sampling, &never, &error);
    if (status == STATUS_OK && run->status != STATUS_OK)
        status = error_set(&error, run->status, "there is not enough memory");
    int exit_status = EXIT_FAILED;
    bool started = spawn_started(run->spawn);
    if (started)
        exit_status = await_end(run->spawn);
    spawn_close(run->spawn);
    if (started)
        report(run, &sampling, status, &error);
    else
        sampling_remove_capture(&sampling);
    if (started)
        return exit_status;
    return run->tried ? fail_to_start(&error, options->command[0]) : cli_fail(&error);
}

/* Makes what the agent needs, and the child that is to become the command, with the agent in its environment. */
static enum status prepare_agent(struct run *run, struct error *error) {
    char library[PATH_MAX];
    TRY(preload_find_agent(library, sizeof library, error));
    if (run->options->wants_perf)
        TRY(machine_try_perf(error));
    TRY(agent_session_open(&run->agents, error));
    struct preload preload = {
        .agent = library,
        .folder = agent_session_folder(run->agents),
        .period_ns = (uint64_t)((double)NS_PER_S / run->options->sampling.sampler.rate_hz),
        .paused = run->options->on_demand,
        .wants_perf = run->options->wants_perf,
        .memory_stride_bytes = run->options->memory_stride_bytes,
        .copy_stride_bytes = run->options->memory_stride_bytes > 0 ? COPY_STRIDE_BYTES : 0,
    };
    enum status status = preload_enter(&preload);
    if (status == STATUS_OK)
        status = spawn_open(run->options->command, &run->spawn, error);
    else
        (void)error_set(error, status, "there is not enough memory");
    preload_leave();
    return status;
}

static enum status prepare(struct run *run, struct error *error) {
    char obstacle[PRELOAD_OBSTACLE_BYTES];
    const char *command = run->options->command[0];
    if (!run->options->no_agent && preload_find_obstacle(command, obstacle)) {
        cli_say("%s %s, so the agent cannot be loaded: sampling from outside, as with --no-agent", command, obstacle);
        run->options->no_agent = true;
    }
    return run->options->no_agent ? spawn_open(run->options->command, &run->spawn, error) : prepare_agent(run, error);
}

int command_run(int argc, char **argv) {
    struct run_options options = {.sampling.sampler.children = true, .memory_stride_bytes = MEMORY_STRIDE_BYTES};
    struct run run = {.options = &options};
    struct error error = {0};
    char *path = NULL;
    int exit_status = EXIT_FAILED;
    sampling_init_options(&options.sampling);
    int ended = parse(argc, argv, &options);
    if (ended >= 0)
        return ended;
    if (prepare(&run, &error) != STATUS_OK) {
        exit_status = cli_fail(&error);
        goto out;
    }
    cli_ignore_write_signals();
    path = sampling_make_path(&options.sampling, options.command, spawn_pid(run.spawn));
    if (path != NULL)
        exit_status = run_command(&run, path);
    else
        spawn_close(run.spawn);
out:
    agent_session_close(run.agents);
    free(path);
    free(options.command);
    return exit_status;
}
