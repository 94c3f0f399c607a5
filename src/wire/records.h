/* What stands in a ring. Records are aligned to 8 bytes and do not wrap: WIRE_PAD fills what is left at the ring's end.
 * A reader takes nothing for granted: sizes are checked against the record's own, and a record of an unknown type is
 * skipped. Native byte order: both sides run on the same machine. */
#ifndef STROBE_WIRE_RECORDS_H
#define STROBE_WIRE_RECORDS_H

#include <stdint.h>

enum wire_type {
    WIRE_PAD,
    WIRE_CODE,
    WIRE_SAMPLE,
    WIRE_ALLOC,
    WIRE_RESIZE,
    WIRE_FREE,
    WIRE_COPY,
    WIRE_START,
    WIRE_SITE,
    WIRE_COUNTS
};

struct wire_record {
    uint32_t size_bytes; /* with this header; a multiple of 8, at least 8 */
    uint16_t type;
    uint16_t flags;
};

/* A code object, in full, so that it can be named when it or the whole process is gone. From here on in this ring its
 * address means this one; it comes again when the address has come to mean another.
 *
 * Behind the struct, each padded to 8 bytes: name, qualname, filename, line table. Text is as CPython has it: `kind`
 * bytes a character, Latin-1, UCS-2 or UCS-4. */
struct wire_code {
    struct wire_record record;
    uint64_t address;
    uint32_t bytecode_bytes;
    uint32_t first_traceable_bytes;
    int32_t first_line;
    uint32_t flags;                                  /* co_flags */
    uint8_t name_kind, qualname_kind, filename_kind; /* 1, 2, 4; 0: none, or too long (WIRE_CODE_MAX_…) */
    uint8_t unused;
    uint32_t name_bytes, qualname_bytes, filename_bytes;
    uint32_t table_bytes;   /* as here; 0 when it is longer than WIRE_CODE_MAX_TABLE_BYTES: then it can only be read */
    uint32_t table_length;  /* as it is */
    uint64_t table_address; /* of its first byte in the process, as long as the code object lives */
};

enum {
    WIRE_CODE_MAX_NAME_BYTES = 4 << 10, /* longer text is cut, between characters */
    WIRE_CODE_MAX_FILENAME_BYTES = 16 << 10,
    WIRE_CODE_MAX_TABLE_BYTES = 24 << 10,
};

enum wire_frame_kind {
    WIRE_FRAME_PYTHON,
    WIRE_FRAME_NATIVE, /* C stands between the frames: an entry of the interpreter's */
    WIRE_FRAME_CUT,    /* frames were left out here: the stack is deeper than a record holds */
    WIRE_FRAME_LOST,   /* one whose code object is gone and was not told of: there was no room */
};

struct wire_frame {
    uint64_t code;             /* address; 0 but for WIRE_FRAME_PYTHON */
    int32_t instruction_bytes; /* into the bytecode, as frame_position's; -1: not begun */
    uint32_t kind;
};

enum wire_sample_flag {
    WIRE_SAMPLE_TORN = 1,      /* the stack could not be told: no frames; its CPU time counts all the same */
    WIRE_SAMPLE_NO_PYTHON = 2, /* a thread that the interpreter does not know */
    WIRE_SAMPLE_DETACHED = 4,  /* the thread does not hold the GIL (is not attached, when free-threaded) */
    /* Of WIRE_ALLOC, WIRE_RESIZE and WIRE_FREE: the interpreter has begun to tear itself down. */
    WIRE_MEMORY_FINALIZING = 8,
    /* Of WIRE_SAMPLE: not by the clock, but as the process ends (_exit) before the clock has struck once. There is no
     * C stack with it and no instruction of the program's: what the time was spent on is not known. */
    WIRE_SAMPLE_AT_END = 16,
};

/* One look of a thread at itself. Behind the struct: `frame_count` frames, innermost first, then `stack_words` words
 * of the C stack from `stack_pointer` up, as far as they can say what called the interrupted code: none when that is
 * the evaluation loop itself. The outermost `kept` frames are those of this ring's sample before and are not
 * repeated. */
struct wire_sample {
    struct wire_record record; /* flags: enum wire_sample_flag */
    uint64_t time_ns;
    /* The thread's CPU clock. What it is ahead of the sample before, or of the slot's start_cpu_ns, is what this one
     * stands for. What the thread used while sampling was paused is not in it, nor in the two below, nor in the slot's
     * end_cpu_ns. */
    uint64_t cpu_ns;
    uint64_t user_us; /* the thread's user and system time (getrusage(RUSAGE_THREAD)), which the kernel estimates */
    uint64_t system_us;
    uint32_t overruns;
    uint32_t kept;
    uint32_t frame_count;
    uint32_t stack_words;
    uint32_t code_unit; /* the innermost Python frame's instruction: opcode, then oparg << 8; 0: not known */
    uint32_t unused;
    uint64_t program_counter;
    uint64_t stack_pointer;
    uint64_t return_register; /* where the architecture keeps a return address in a register (aarch64); else 0 */
    uint64_t frame_register;  /* rbp, x29: compilers have functions find their frame with it */
};

/* Whose allocation it is. */
enum wire_domain {
    WIRE_DOMAIN_MALLOC, /* malloc and its kin, from native code */
    WIRE_DOMAIN_PYTHON, /* Python's raw, mem and object domains */
    WIRE_DOMAIN_MAP,    /* an anonymous mapping of the program's own */
};

/* Memory is sampled byte by byte: each byte that the program asks for is struck with the same small chance, and an
 * allocation is told when one of its bytes was, or when it is large enough to be told always. It stands for
 * `weight_bytes` bytes and `weight_count` 1/1024 blocks: added up over all records they estimate without bias what was
 * allocated; over those whose block is not given back yet, what is live.
 *
 * A block has an `id`, by which it is known until it is given back, to whatever address realloc moves it. Ids are never
 * used again in a region. What concerns one block may stand in several rings, so that what happened later may be read
 * earlier: a WIRE_FREE that comes before its WIRE_ALLOC takes that back when it comes.
 *
 * A realloc that makes a block larger is an allocation of the bytes by which it grows, and if those are sampled, it is
 * told: with the id that the block has already, if any (then its bytes are charged to several places), and no block in
 * weight_count. One that makes a sampled block smaller is a WIRE_RESIZE: the weights of all its records shrink in
 * proportion.
 *
 * Behind the struct: `frame_count` frames as in wire_sample; `kept` counts from this ring's last record with frames, of
 * whichever type. */
struct wire_alloc {
    struct wire_record record; /* flags: enum wire_sample_flag, as in the two below */
    uint64_t time_ns;
    uint64_t id;
    uint64_t address;
    uint64_t size_bytes;  /* of the block */
    uint64_t grown_bytes; /* of these, what is new; less than size_bytes after realloc */
    uint64_t weight_bytes;
    uint64_t weight_count;
    uint64_t footprint_bytes; /* of the whole process, as nearly as the thread knows it */
    uint64_t allocated_bytes; /* by this thread so far, this allocation included */
    uint32_t domain;          /* enum wire_domain */
    uint32_t kept;
    uint32_t frame_count;
    uint32_t unused;
};

/* A sampled block is smaller from now on. */
struct wire_resize {
    struct wire_record record;
    uint64_t time_ns;
    uint64_t id;
    uint64_t size_bytes;
    uint64_t footprint_bytes;
};

/* A sampled block is about to be given back. */
struct wire_free {
    struct wire_record record;
    uint64_t time_ns;
    uint64_t id;
    uint64_t footprint_bytes;
    uint64_t allocated_bytes; /* by this thread so far: one that allocated the block itself and nothing since has only
                               * needed it for a moment */
};

/* A sampled copy; frames as in wire_alloc. */
struct wire_copy {
    struct wire_record record;
    uint64_t time_ns;
    uint64_t size_bytes;
    uint64_t weight_bytes;
    uint32_t kept;
    uint32_t frame_count;
};

/* The thread has started another one, in whose slot the id stands; frames as in wire_alloc. Where memory is not looked
 * at there are none. */
struct wire_start {
    struct wire_record record; /* flags: enum wire_sample_flag */
    uint64_t time_ns;
    uint64_t id;
    uint32_t kept;
    uint32_t frame_count;
};

/* Where every allocation is counted (wire_region.memory_stride_bytes is 1), none of the above is told of memory but
 * copies. What the threads do comes summed up by site: a thread's stack, with a number that is never used again in the
 * region. Frames as in wire_alloc. A site may be spoken of in other rings, and there before it is read here. */
struct wire_site {
    struct wire_record record;
    uint32_t site;
    uint32_t kept;
    uint32_t frame_count;
    uint32_t unused;
};

enum {
    WIRE_SITE_UNKNOWN = 1 /* and told by nobody: a stack that could not be told, or of which strobe could not be */
};

/* What the threads of a slot did with blocks of a site since the slot's last such record of the site. A block that has
 * grown is, as a whole, the site's where it did. */
struct wire_counts {
    struct wire_record record;
    uint64_t time_ns;
    uint32_t site;
    uint32_t slot; /* index */
    uint64_t alloc_bytes, alloc_count;
    uint64_t python_bytes;    /* of alloc_bytes, what Python's allocators gave */
    uint64_t temporary_bytes; /* given back before the thread allocated anything else */
    int64_t live_bytes, live_count;
    /* Each new maximum of the footprint has a number, wire_region.peak_id. This one was the last when live_bytes last
     * changed, and `before_bytes` of it came before that maximum if the number is another than in the record before. */
    int64_t before_bytes;
    uint64_t peak_id;
};

enum { WIRE_SAMPLE_MAX_FRAMES = 3000, WIRE_SAMPLE_MAX_STACK_WORDS = 1024 };

#endif
