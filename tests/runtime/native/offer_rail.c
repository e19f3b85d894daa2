/* An executor that splits a rail: it offers `request` while `is_offered`. */
#include "rail_request.h"

#include <stddef.h>

struct tuccl_rail_request request = {TUCCL_RAIL_NO_REQUEST, 2, 0};
int is_offered = 0;

struct tuccl_rail_request *tuccl_executor_rail_request(void);
struct tuccl_rail_request *tuccl_executor_rail_request(void) {
    return is_offered ? &request : NULL;
}
