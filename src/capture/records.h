/* What a capture is made of: the same structs go into the writer and come out of the reader.
 * docs/capture-format.md says how they look in a file. */
#ifndef STROBE_CAPTURE_RECORDS_H
#define STROBE_CAPTURE_RECORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A piece of text: UTF-8 by intent, but a path may hold any byte, NUL too. Not NUL-terminated. */
struct capture_text {
    const char *bytes; /* borrowed; may be NULL when size_bytes is 0 */
    size_t size_bytes;
};

/* What a sample's weight is made of. */
enum capture_mode { CAPTURE_MODE_WALL, CAPTURE_MODE_CPU, CAPTURE_MODE_GIL };

/* Who looked. */
enum capture_origin { CAPTURE_ORIGIN_ATTACH, CAPTURE_ORIGIN_RUN };

enum capture_frame_kind {
    CAPTURE_FRAME_PYTHON,
    CAPTURE_FRAME_NATIVE,     /* C between Python frames: <native>, or a symbol where it is known */
    CAPTURE_FRAME_GC,         /* the garbage collector: <GC> */
    CAPTURE_FRAME_KERNEL,     /* a system call */
    CAPTURE_FRAME_UNREADABLE, /* a frame that could not be read */
    CAPTURE_FRAME_CUT,        /* stands for frames that were left out of a stack too deep to follow */
    CAPTURE_FRAME_TASK,       /* an asyncio task's boundary; function is the task's name */
    CAPTURE_FRAME_KINDS
};

/* Ids of strings; 0 is "none" (and the empty text). Lines are 1-based, columns UTF-8 byte offsets; -1: unknown. */
struct capture_frame {
    enum capture_frame_kind kind;
    uint32_t function;
    uint32_t qualname; /* 0 before 3.11 */
    uint32_t file;
    int32_t line;
    int32_t end_line;
    int32_t column;
    int32_t end_column;
    int32_t first_line; /* co_firstlineno */
};

struct capture_process {
    uint32_t process;        /* number in the capture, from 0; given by the caller */
    int32_t pid;             /* in strobe's own PID namespace */
    int32_t parent_pid;      /* 0: not known */
    uint32_t python_version; /* PY_VERSION_HEX, 0: not known */
    bool free_threaded;
    enum capture_mode mode;
    enum capture_origin origin;
    uint64_t rate_millihertz; /* asked for */
    uint64_t start_unix_ns;   /* when sampling it began, by CLOCK_REALTIME */
    uint64_t start_ns;        /* the same instant by the samples' clock (CLOCK_MONOTONIC) */
    const struct capture_text *command;
    size_t command_count;
    /* Folders and files whose code is library code beyond those that are told by their path (site-packages,
     * lib/python3.N). */
    const struct capture_text *libraries;
    size_t library_count;
};

struct capture_thread {
    uint32_t process;
    uint64_t native_id;  /* threading.get_native_id(), as the process itself counts; 0: not known */
    uint64_t thread_id;  /* threading.get_ident(); 0: not known to Python */
    int64_t interpreter; /* -1: none */
    struct capture_text name;
};

enum capture_run { CAPTURE_RUN_UNKNOWN, CAPTURE_RUNNING, CAPTURE_IDLE };
enum capture_gil { CAPTURE_GIL_UNKNOWN, CAPTURE_GIL_NONE, CAPTURE_GIL_HELD, CAPTURE_GIL_WAITING };

struct capture_sample {
    uint32_t thread;    /* from capture_add_thread */
    uint32_t stack;     /* 0: a thread without frames */
    uint64_t time_ns;   /* CLOCK_MONOTONIC */
    uint64_t weight_ns; /* the time it stands for, in the clock of the process's mode */
    enum capture_run run;
    enum capture_gil gil;
    bool collecting; /* a garbage collection ran in it */
};

/* Measures of a thread × stack that are no plain sample: the agent's CPU split, allocations, copies, GPU. The numbers
 * are part of the format: never change one. */
enum capture_measure_id {
    CAPTURE_MEASURE_SAMPLES = 0,
    CAPTURE_MEASURE_WALL_NS = 1,
    CAPTURE_MEASURE_CPU_NS = 2,
    CAPTURE_MEASURE_CPU_PYTHON_NS = 3,
    CAPTURE_MEASURE_CPU_NATIVE_NS = 4,
    CAPTURE_MEASURE_CPU_KERNEL_NS = 5,
    CAPTURE_MEASURE_WAIT_NS = 6,
    CAPTURE_MEASURE_GIL_WAIT_NS = 7,
    CAPTURE_MEASURE_ALLOC_BYTES = 8,
    CAPTURE_MEASURE_ALLOC_COUNT = 9,
    CAPTURE_MEASURE_PEAK_BYTES = 10,
    CAPTURE_MEASURE_LIVE_BYTES = 11,
    CAPTURE_MEASURE_PYTHON_BYTES = 12,
    CAPTURE_MEASURE_COPY_BYTES = 13,
    CAPTURE_MEASURE_GPU_NS = 14,
    CAPTURE_MEASURE_GPU_BYTES = 15,
    CAPTURE_MEASURE_TEMPORARY_BYTES = 16,
    CAPTURE_MEASURE_LIVE_COUNT = 17,
    /* Of the sampling: squares of standard deviations, in KiB². */
    CAPTURE_MEASURE_ALLOC_VARIANCE = 18,
    CAPTURE_MEASURE_PEAK_VARIANCE = 19,
    CAPTURE_MEASURE_LIVE_VARIANCE = 20,
    CAPTURE_MEASURE_COPY_VARIANCE = 21,
    CAPTURE_MEASURES
};

struct capture_value {
    uint32_t measure; /* enum capture_measure_id, or a number of a later version */
    uint64_t amount;  /* to be added to what is there */
};

struct capture_event {
    uint32_t thread;
    uint32_t stack;
    uint64_t time_ns;
    const struct capture_value *values;
    size_t value_count; /* at most CAPTURE_EVENT_VALUES */
};

enum { CAPTURE_EVENT_VALUES = 32 };

struct capture_difference {
    uint32_t measure;
    int64_t amount; /* to be added to what is there */
};

/* Of what no thread has for itself: what is live of the memory that came from a stack, whoever gives it back. */
struct capture_change {
    uint32_t process;
    uint32_t stack;
    uint64_t time_ns;
    const struct capture_difference *values;
    size_t value_count; /* at most CAPTURE_EVENT_VALUES */
};

struct capture_point {
    uint64_t time_ns;
    uint64_t bytes;
};

/* The memory of one process; the last record counts, but for the points, which continue those before. The changes
 * before it are what it is made of. */
struct capture_footprint {
    uint32_t process;
    uint64_t time_ns;
    uint64_t footprint_bytes; /* what it holds */
    uint64_t peak_bytes;      /* the most that it has held, and when */
    uint64_t peak_ns;
    uint64_t inherited_bytes; /* what it held when it was forked */
    uint64_t stride_bytes;    /* the mean number of bytes between two samples; 1: there is no sampling */
    uint64_t lost_records;
    uint64_t resident_bytes;            /* the most that was seen of it in RAM; 0: it was not looked at */
    const struct capture_point *points; /* of the footprint, by time */
    size_t point_count;                 /* at most CAPTURE_FOOTPRINT_POINTS */
    /* How often it has exec'd. More than in the record before: another program begins, with nothing live, and its
     * changes follow. */
    uint64_t exec_count;
};

enum { CAPTURE_FOOTPRINT_POINTS = 1024 };

/* Running totals of one process since sampling it began; the last record counts. */
struct capture_counters {
    uint64_t taken;        /* samples written */
    uint64_t missed;       /* looks that came too late to be taken */
    uint64_t inconsistent; /* looks dropped because the target changed meanwhile */
    uint64_t errors;       /* looks that failed otherwise */
};

#endif
