/* Where CPython keeps what: one `struct layout` describes one interpreter build, whatever its version.
 *
 * 3.8 to 3.12 come from tables that tools/generate-layouts makes from the real headers (layout_tables.c). 3.13 and
 * later describe themselves in `_Py_DebugOffsets` (debug_offsets.c); what that table lacks is derived from what it has.
 * docs/cpython-layouts.md gives each field's source.
 *
 * Fields are byte offsets from the start of the CPython struct they are named after, with CPython's own field names.
 * Those called `size` are that struct's size in bytes. A field that this version does not have is OFFSET_NONE. */
#ifndef STROBE_CPYTHON_LAYOUT_H
#define STROBE_CPYTHON_LAYOUT_H

#include "base/memory.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef uint32_t layout_offset;
#define OFFSET_NONE UINT32_MAX

/* _PyRuntimeState */
struct layout_runtime {
    layout_offset size;
    layout_offset interpreters_head;
    layout_offset finalizing;
    layout_offset gil;            /* <= 3.11: struct _gil_runtime_state inside the runtime */
    layout_offset tstate_current; /* <= 3.11: gilstate.tstate_current, the thread that holds the GIL */
    layout_offset gc_collecting;  /* 3.8 only */
};

/* PyInterpreterState */
struct layout_interp {
    layout_offset size;
    layout_offset id;
    layout_offset next;
    layout_offset threads_head;
    layout_offset threads_next_id; /* how many states there have been: a uint64_t */
    layout_offset threads_main;    /* 3.14+ */
    layout_offset modules;         /* sys.modules */
    layout_offset sysdict;
    layout_offset builtins;
    layout_offset gc_collecting;          /* 3.9+: gc.collecting, an int */
    layout_offset gc_frame;               /* 3.15+: the frame in which a collection runs */
    layout_offset ceval_gil;              /* 3.12+: pointer to the struct _gil_runtime_state in use */
    layout_offset code_object_generation; /* 3.14+ */
    layout_offset tlbc_generation;        /* 3.14+ free-threaded */
};

/* struct _gil_runtime_state */
struct layout_gil {
    layout_offset size; /* an upper bound where it is derived: only used to tell whose futex an address is */
    layout_offset locked;
    layout_offset last_holder;
    layout_offset enabled; /* free-threaded: nonzero while the GIL is on */
};

/* PyThreadState */
struct layout_thread {
    layout_offset size;
    layout_offset prev;
    layout_offset next;
    layout_offset interp;
    layout_offset frame;                   /* <= 3.10: PyFrameObject * */
    layout_offset cframe;                  /* 3.11, 3.12: _PyCFrame * */
    layout_offset current_frame;           /* 3.13+: _PyInterpreterFrame * */
    layout_offset base_frame;              /* 3.15+ */
    layout_offset last_profiled_frame;     /* 3.15+ */
    layout_offset last_profiled_frame_seq; /* 3.15+ */
    layout_offset thread_id;
    layout_offset native_thread_id; /* 3.11+ */
    layout_offset datastack_chunk;  /* 3.11+ */
    layout_offset status;           /* 3.12+ */
    layout_offset holds_gil;        /* 3.15+ */
    layout_offset gil_requested;    /* 3.15+ */
};

/* _PyCFrame (3.11, 3.12) */
struct layout_cframe {
    layout_offset current_frame;
};

/* _PyStackChunk (3.11+) */
struct layout_stack_chunk {
    layout_offset previous;
    layout_offset size;
    layout_offset top;
    layout_offset data;
};

/* PyFrameObject of <= 3.10, where it is the frame itself */
struct layout_frame_object {
    layout_offset size;
    layout_offset f_back;
    layout_offset f_code;
    layout_offset f_builtins;
    layout_offset f_globals;
    layout_offset f_locals;
    layout_offset f_valuestack;
    layout_offset f_stacktop;   /* 3.8, 3.9 */
    layout_offset f_stackdepth; /* 3.10 */
    layout_offset f_gen;
    layout_offset f_lasti;
    layout_offset f_lineno;
    layout_offset f_executing; /* 3.8, 3.9: char */
    layout_offset f_state;     /* 3.10: signed char */
    layout_offset f_localsplus;
};

/* _PyInterpreterFrame (3.11+) */
struct layout_frame {
    layout_offset size;
    layout_offset previous;
    layout_offset f_executable; /* f_code before 3.13; a _PyStackRef from 3.14 */
    layout_offset f_funcobj;    /* f_func in 3.11 */
    layout_offset f_globals;
    layout_offset f_builtins;
    layout_offset f_locals;
    layout_offset frame_obj;
    layout_offset instr_ptr;     /* prev_instr in 3.11 and 3.12 */
    layout_offset stacktop;      /* 3.11 to 3.13 */
    layout_offset stackpointer;  /* 3.14+ */
    layout_offset return_offset; /* 3.12+ */
    layout_offset tlbc_index;    /* 3.14+ free-threaded */
    layout_offset owner;
    layout_offset is_entry; /* 3.11 */
    layout_offset localsplus;
};

/* PyCodeObject */
struct layout_code {
    layout_offset size;      /* sizeof(PyCodeObject); from 3.11 on it ends just behind where the bytecode begins */
    layout_offset co_consts; /* 3.11+ */
    layout_offset co_names;  /* 3.11+ */
    layout_offset co_flags;
    layout_offset co_argcount;
    layout_offset co_posonlyargcount;
    layout_offset co_kwonlyargcount;
    layout_offset co_stacksize;
    layout_offset co_firstlineno;
    layout_offset co_nlocals;
    layout_offset co_nlocalsplus;     /* 3.11+ */
    layout_offset co_framesize;       /* 3.12+ (words); 3.11 has none */
    layout_offset co_localsplusnames; /* 3.11+ */
    layout_offset co_localspluskinds; /* 3.11+ */
    layout_offset co_varnames;        /* <= 3.10 */
    layout_offset co_freevars;        /* <= 3.10 */
    layout_offset co_cellvars;        /* <= 3.10 */
    layout_offset co_filename;
    layout_offset co_name;
    layout_offset co_qualname;       /* 3.11+ */
    layout_offset co_linetable;      /* co_lnotab before 3.10 */
    layout_offset co_firsttraceable; /* 3.11+: _co_firsttraceable, in code units */
    layout_offset co_code;           /* <= 3.10: bytes object */
    layout_offset co_code_adaptive;  /* 3.11+: the bytecode itself; its length in code units is ob_size */
    layout_offset co_tlbc;           /* 3.14+ free-threaded */
};

/* PyObject, PyVarObject */
struct layout_object {
    layout_offset size; /* 16, 32 when free-threaded */
    layout_offset ob_type;
    layout_offset ob_size;  /* PyVarObject */
    layout_offset var_size; /* sizeof(PyVarObject) */
    layout_offset gc_head;  /* bytes of PyGC_Head before an object that is collected: 16, 0 when free-threaded */
};

/* PyTypeObject, PyHeapTypeObject */
struct layout_type {
    layout_offset size;
    layout_offset tp_name;
    layout_offset tp_basicsize;
    layout_offset tp_itemsize;
    layout_offset tp_flags;
    layout_offset tp_base;
    layout_offset tp_dict;
    layout_offset tp_dictoffset;
    layout_offset ht_name;
    layout_offset ht_qualname;
    layout_offset ht_cached_keys;
};

struct layout_tuple {
    layout_offset ob_item;
};

struct layout_list {
    layout_offset ob_item; /* pointer to the items */
};

/* PySetObject, setentry {key, hash} */
struct layout_set {
    layout_offset used;
    layout_offset table;
    layout_offset mask;
};

struct layout_dict {
    layout_offset ma_used;
    layout_offset ma_keys;
    layout_offset ma_values;
};

/* PyDictKeysObject */
struct layout_dict_keys {
    layout_offset dk_size;             /* <= 3.10: slots in the index */
    layout_offset dk_log2_size;        /* 3.11+ */
    layout_offset dk_log2_index_bytes; /* 3.11+ */
    layout_offset dk_kind;             /* 3.11+: 0 general, 1 unicode, 2 split */
    layout_offset dk_nentries;
    layout_offset dk_indices;
};

/* Where an instance keeps its attributes when it has no plain __dict__ slot */
struct layout_managed {
    /* From the object's address back to the word that holds the dict (3.12+: or, tagged in 3.12, the values). 3.11 has
     * the values at values_back and the dict at dict_back. OFFSET_NONE before 3.11. */
    layout_offset dict_back;
    layout_offset values_back;
    bool inline_values; /* 3.13+: values stand behind the object, at tp_basicsize */
    /* struct _dictvalues */
    layout_offset values_capacity; /* 3.13+: u8 */
    layout_offset values_size;     /* 3.13+: u8; before, the byte at -2 of the values */
    layout_offset values_valid;    /* 3.13+: u8 */
    layout_offset values_items;
};

struct layout_float {
    layout_offset ob_fval;
};

struct layout_complex {
    layout_offset cval;
};

/* PyLongObject */
struct layout_long {
    layout_offset lv_tag; /* 3.12+; before, the sign and length are ob_size */
    layout_offset ob_digit;
};

struct layout_bytes {
    layout_offset ob_sval;
};

struct layout_bytearray {
    layout_offset ob_start;
};

/* PyASCIIObject, PyCompactUnicodeObject, PyUnicodeObject */
struct layout_unicode {
    layout_offset length;
    layout_offset state;
    layout_offset ascii_size;   /* sizeof(PyASCIIObject) */
    layout_offset compact_size; /* sizeof(PyCompactUnicodeObject) */
    layout_offset data;         /* PyUnicodeObject.data, for strings that are not compact (<= 3.11) */
    /* Bits in the 32-bit word at `state`. */
    uint8_t kind_shift; /* 3 bits */
    uint8_t compact_shift;
    uint8_t ascii_shift;
};

struct layout_function {
    layout_offset func_code;
    layout_offset func_name;
    layout_offset func_qualname;
};

struct layout_method {
    layout_offset im_func;
    layout_offset im_self;
};

struct layout_builtin {
    layout_offset m_ml;
    layout_offset m_self;
};

struct layout_module {
    layout_offset md_dict;
    layout_offset md_name;
};

struct layout_cell {
    layout_offset ob_ref;
};

/* PyGenObject, PyCoroObject, PyAsyncGenObject */
struct layout_gen {
    layout_offset gi_frame;       /* <= 3.10 */
    layout_offset gi_code;        /* <= 3.11 */
    layout_offset gi_iframe;      /* 3.11+ */
    layout_offset gi_frame_state; /* 3.11+: int8_t */
    layout_offset gi_name;
    layout_offset gi_qualname;
};

struct layout_llist {
    layout_offset next;
    layout_offset prev;
};

/* The versions whose layouts are known: 3.8 to 3.15. */
enum { LAYOUT_OLDEST_MINOR = 8, LAYOUT_NEWEST_MINOR = 15 };

struct layout {
    uint32_t version; /* PY_VERSION_HEX; of a table for <= 3.12, the version its headers came from */
    bool free_threaded;
    bool tagged_refs;      /* 3.14+: frames hold _PyStackRef, whose low bits are tags */
    bool newer_than_known; /* read with the newest known table shape: worth a warning */
    /* Values of _PyInterpreterFrame.owner from which on a frame is the interpreter's own and has no Python code:
     * 3 in 3.12 and later; 255 in 3.11, which has none. */
    uint8_t first_boundary_owner;
    struct layout_runtime runtime;
    struct layout_interp interp;
    struct layout_gil gil;
    struct layout_thread thread;
    struct layout_cframe cframe;
    struct layout_stack_chunk stack_chunk;
    struct layout_frame_object frame_object;
    struct layout_frame frame;
    struct layout_code code;
    struct layout_object object;
    struct layout_type type;
    struct layout_tuple tuple;
    struct layout_list list;
    struct layout_set set;
    struct layout_dict dict;
    struct layout_dict_keys dict_keys;
    struct layout_managed managed;
    struct layout_float float_;
    struct layout_complex complex_;
    struct layout_long long_;
    struct layout_bytes bytes;
    struct layout_bytearray bytearray;
    struct layout_unicode unicode;
    struct layout_function function;
    struct layout_method method;
    struct layout_builtin builtin;
    struct layout_module module;
    struct layout_cell cell;
    struct layout_gen gen;
    struct layout_llist llist;
};

static inline int layout_minor(const struct layout *layout) {
    return (int)(layout->version >> 16 & 0xff);
}

static inline bool layout_has(layout_offset offset) {
    return offset != OFFSET_NONE;
}

/* The tables of 3.8 to 3.12 that this machine's programs can be built with: one for each minor version; on aarch64 two,
 * since glibc's and musl's mutexes differ in size. *count receives how many. Static storage. */
const struct layout *layout_tables(size_t *count);

/* The most bytes that a `_Py_DebugOffsets` of any version has. */
enum { DEBUG_OFFSETS_MAX_BYTES = 1024 };

/* Whether a runtime that begins with these (at least 24) bytes describes itself. */
bool debug_offsets_present(const void *table, size_t size_bytes);

/* Makes a layout from the first bytes of `_PyRuntime`: cookie, version, free-threaded flag, every offset and size are
 * checked against each other; what the table lacks is derived. STATUS_NOT_PYTHON when the table contradicts itself or
 * its version is older than 3.13; the error says which field. */
enum status debug_offsets_decode(const void *table, size_t size_bytes, struct layout *layout,
                                 struct error *error) MUST_USE;

#endif
