#include "cpython/string.h"
