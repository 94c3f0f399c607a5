#include "cpython/dict.h"
