/* The build id, alone in its file: it changes with every source, and only this object is rebuilt.
 */
#include "build_id.h"
#include "shm/seg.h"

const char *build_id(void)
{
    return BUILD_ID;
}
