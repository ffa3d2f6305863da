command -v nvidia-smi >/dev/null 2>&1 || exit 127
limit=
command -v timeout >/dev/null 2>&1 && limit="timeout -k 1 $1"
csv=--format=csv,noheader,nounits
$limit nvidia-smi --query-gpu=@FIELDS@ $csv
code=$?
echo @PROCESSES@
test $code = 0 && $limit nvidia-smi --query-compute-apps=gpu_uuid,pid $csv
exit $code
