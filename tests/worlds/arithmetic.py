"""A small JPEG in arithmetic coding (``jpegtran -arithmetic``), which no library here can write."""

from base64 import b85decode

# tests.worlds.pictures.picture(size=(48, 32)) at quality 60, 4:2:0.
ARITHMETIC = b85decode(
    "|JeWF01!$>Nk#wx0RR9200961|JwjV01XKW3knDg3knMk4h;_zAQcl55)&sJ9v2`kDKRiEDJ?8BI!Zn>HbyrrEkIX6ModmpQ&KWMT47pHU`k"
    "O^PygEhLjevB4iga*CKVMXPc<zyPft%zPft%zPft%zPft%zPft%zPft%zPft%zPft%zPft%zPft%zPft%zPft%zPf!2J01*fPAOJ7}0U`hb5"
    "di}c0sqVZ3IGrg1pyEd1^?Or3<CiG0ucid06zf#0BGSNb*j7q<pgvLcm^AQ;SXN>w##&BVU`M(8Z3N9-Fo*03-Kvq_Kd-ER#xh+TG#_1<bRc"
    "Z9(S8nT65ALnXiZ5pqW_`E0ZdSW^dHpp_}jA7`*(HEO3m&tz&gEsem92VsUq@`SHNvmYQ3~yC|d5iehM2npACq(@?2Fj*BEf+Fm{G;=KDa{{"
    "R$WyfNo@I^bTHOi~Q~nK##fL|kSpCfyb}7qX>lmRr71m-a8@1#yd4+YdbQN(VHNPERPFrRfz3H4JmslUoS-`cL4hd8?qU@Cg^2@4edl;dEj3"
    "P^U&$O=b`E{dw!F9goc{<4E27^Top?xo|S7+Xxz?30K2w^iJ>8(LLJJz+pH7zTg@;<?oT<vH{dB^+wj_d-N83)Q-*|NWFUsNbNZ?xw*i{V2G"
    "lpas#B6`kC;MGBW|Sdbs1G=|*^u(5)hb33aW$D3*ra3q?UMTL_YH3I&igStZSs(`L#O+d&@5&;5Q7zIT8OLI2q"
)
ARITHMETIC_PROGRESSIVE = b85decode(
    "|JeWF01!$>Nk#wx0RR9200961|JwjV01XKW3knDg3knMk4h;_zAQcl55)&sJ9v2`kDKRiEDJ?8BI!Zn>HbyrrEkIX6ModmpQ&KWMT47pHU`k"
    "O^PygEhLjevB4iga*CKVMXPc<zyPft%zPft%zPft%zPft%zPft%zPft%zPft%zPft%zPft%zPft%zPft%zPft%zPf!2K01*fPAOJ7}0U`hb5"
    "di}c0sqVZ1^^HN5dYc$3<CiG0uTcb00060(aPTgl+?kSz1`tHRm%~If>k*Vtd%wiaKS=4g8$3_1P}%P+5iXv0RRC70vels%qLF=Es{LTvGQm"
    "lnnnI^X#9l57RD6x<ON{Y6zyS1h~RsmQ~v+V00a>Q|Jncu0RsU6KLHbT`bmtH;4nP;g?9FBt?HbfUx5G200a>Q|Jncu0RjO5KLIBeLZnx3EQ"
    "mzK_+Zpv|I7dc5C#9*00;pA00ut-UvM;P;3A_P_=bTZ#qNZJdsD*UYRO9s?gHf&fd9+@1P}%P+5iXv0RRC%AyBiW5s#_xGbfczc-OZLpJebA"
    "*qw7zrmO1?iiSb?zl4hv&OU|fekAo7C;2V>0>$Z8bj<0B@p$a-1`zk$XJGR?%h#^|+5ij#0RRF30{{R35Uza;Y!Ls<00a>Q|Jncu0RsU6KM;"
    "caXw%B-Qdes`az!uq^^NaC|I7dc5e5I+00;pB0RcY{+;{MOQR@Ax++Y9%DEaktet`eX00a;P|Jncu0RaF3KM=3(?y+z<BNL6&5XUCpL#wI*+"
    "bGIP_#@3|F9FmR8mb3ZUZM1fq8ug<09^v_0$7yAnpIg_zz<$$onTvm<I)+^4Sr#Rc<c<EQUE}Pf{KqKd+G%^u=eJ8j34lU(RAVINc7%e=;K*"
    "&WEQa~tjy=*fn#%(mZ`!xsr%v)s}_7ppr3lJ4hCO}Q2*H"
)
