#include "cpython/linetable.h"
