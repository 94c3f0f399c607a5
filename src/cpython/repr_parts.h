/* What the files of repr share; nobody else includes this. */
#ifndef STROBE_CPYTHON_REPR_PARTS_H
#define STROBE_CPYTHON_REPR_PARTS_H

#include "cpython/repr.h"
#include "cpython/type.h"

enum {
    REPR_MAX_DEPTH = 4,    /* containers in containers; what is deeper shows as […] */
    REPR_MAX_NESTING = 16, /* values in values of any sort: a bound for our own stack */
};

struct meter;

/* One call of repr_append. Once `stopped` is set, functions that append return it and the whole ends; other failures
 * are those of the value at hand. */
struct repr {
    struct runtime *runtime;
    struct buffer *text;
    size_t room;         /* characters that may still be appended */
    enum status stopped; /* other than STATUS_OK: nothing more is appended */
    bool cut;            /* stopped because there was no room or no patience left, not by a failure */
    struct meter *meter;
    unsigned nesting;
    unsigned depth;
    remote_addr path[REPR_MAX_DEPTH]; /* the containers that are being shown */
};

typedef enum status repr_show_fn(struct repr *repr, remote_addr object, const struct type_info *type);

/* Appending. Text is UTF-8. */
enum status repr_put(struct repr *repr, const char *text) MUST_USE;
enum status repr_put_bytes(struct repr *repr, const char *text, size_t size_bytes) MUST_USE;
enum status repr_put_format(struct repr *repr, const char *format, ...)
    __attribute__((format(printf, 2, 3))) MUST_USE; /* at most 255 bytes */
/* The characters of a str object without quotes, as names are shown. */
enum status repr_put_name(struct repr *repr, remote_addr string) MUST_USE;
/* Any value; one that cannot be read shows as <unreadable>. */
enum status repr_put_value(struct repr *repr, remote_addr object) MUST_USE;
/* <name at 0x...> */
enum status repr_put_address(struct repr *repr, remote_addr object, const struct type_info *type) MUST_USE;

/* Begins a container: puts `open`. When it is being shown already, or is too deep, it puts `close` too and *entered
 * is false. Ends with repr_leave. */
enum status repr_enter(struct repr *repr, remote_addr object, const char *open, const char *close,
                       bool *entered) MUST_USE;
enum status repr_leave(struct repr *repr, const char *close) MUST_USE;
/* Where the text stands, to take back what was put since. */
struct repr_mark {
    size_t size_bytes;
    size_t room;
};
struct repr_mark repr_mark(const struct repr *repr);
void repr_rewind(struct repr *repr, const struct repr_mark *mark);
/* Puts ", " before all but the first. */
enum status repr_put_comma(struct repr *repr, bool *first) MUST_USE;

/* Follows tp_base from *type until *type is the type of this full name; STATUS_NOT_FOUND when it is not among them. */
enum status repr_find_base(struct repr *repr, struct type_info *type, const char *full_name) MUST_USE;

/* repr_number.c */
enum { REPR_NUMBER_BYTES = 48 };
enum repr_precision { REPR_DOUBLE, REPR_SINGLE, REPR_HALF };
/* The shortest decimal that reads back as `value`, as repr() writes it; point: with ".0" when it is whole. */
void repr_format_real(double value, enum repr_precision precision, bool point, char text[REPR_NUMBER_BYTES]);
/* The same of a complex number, without parentheses; *both: whether it has two parts. */
void repr_format_complex(double real, double imaginary, enum repr_precision precision, bool *both,
                         char text[2 * REPR_NUMBER_BYTES]);
repr_show_fn repr_show_int, repr_show_bool, repr_show_float, repr_show_complex;

/* repr_text.c */
repr_show_fn repr_show_str, repr_show_bytes, repr_show_bytearray;

/* repr_container.c */
repr_show_fn repr_show_list, repr_show_tuple, repr_show_dict, repr_show_set, repr_show_deque, repr_show_defaultdict,
    repr_show_mappingproxy, repr_show_range, repr_show_slice, repr_show_frozendict;
/* The objects at an array of pointers, with commas. */
enum status repr_put_items(struct repr *repr, remote_addr items, uint64_t count) MUST_USE;

/* repr_instance.c */
repr_show_fn repr_show_instance, repr_show_exception;
/* An enum's member or a namedtuple; STATUS_NOT_FOUND when it is neither, and then nothing was put. */
repr_show_fn repr_show_special;

/* repr_named.c: <kind name>, and a sentinel */
repr_show_fn repr_show_type, repr_show_function, repr_show_method, repr_show_builtin, repr_show_module,
    repr_show_generator, repr_show_code, repr_show_cell, repr_show_weakref, repr_show_descriptor, repr_show_sentinel,
    repr_show_lazy_import;

/* repr_datetime.c */
repr_show_fn repr_show_date, repr_show_datetime, repr_show_time, repr_show_timedelta, repr_show_timezone;

/* repr_numpy.c */
/* A scalar, by the type's name; STATUS_NOT_FOUND when it is not known, and then nothing was put. */
repr_show_fn repr_show_numpy_scalar;
repr_show_fn repr_show_numpy_array, repr_show_numpy_dtype;

/* repr_numpy_time.c */
/* A datetime64 or timedelta64; STATUS_NOT_FOUND when it is no time that can be written, and then nothing was put. */
repr_show_fn repr_show_numpy_time;
/* "[ns]", the unit of a dtype of times; old: one of NumPy before 2.0. */
enum status repr_put_numpy_unit(struct repr *repr, remote_addr descr, bool old) MUST_USE;

#endif
