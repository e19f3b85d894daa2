/* An executor that starts a communicator: it offers `request` while `is_offered`. */
#include "request.h"

#include <stddef.h>

struct tuccl_request request = {TUCCL_REQUEST_NCCL, 2, 0, NULL, 0, 0};
int is_offered = 0;

struct tuccl_request *tuccl_executor_request(void);
struct tuccl_request *tuccl_executor_request(void) {
    return is_offered ? &request : NULL;
}

uint32_t answers[2 * TUCCL_ANSWERED_LEARNED];

void tuccl_executor_answered(uint32_t operation);
void tuccl_executor_answered(uint32_t operation) {
    answers[operation]++;
}
